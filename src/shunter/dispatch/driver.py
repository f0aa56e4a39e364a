"""Takes one job through its steps; each is recorded before the next begins, so any leader can go on from any of them.

    waiting -> claimed -> leased -> shipped -> accepted -> running -> ended -> fetched -> settled

A step's function does its remote part, then records the step by compare-and-set. It may be cut off anywhere: what it
asks of a host is idempotent for the same attempt id, so going on means doing the step again. Nothing here decides that
something on a host is over; it records what the host said. A host that could not be asked leaves the step as it is
and the turn marked uncertain once the host may have accepted it.

`on_boundary` is told the name of every boundary, before and after each record; tests crash there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from ..agents import contract
from ..agents.table import load
from ..agents.versions import doubt_version
from ..fleet.places import Places
from ..model.brief import Brief
from ..model.records import Event, Row, Task, Turn
from ..model.states import UNDELIVERED, Step, TaskState, TurnState
from ..policy.outcome import is_given_up, turn_state_of
from ..policy.retry import Again, RetryRule, Stop, decide_again, did_nothing
from ..store.briefs import brief_id, read_brief, remove_briefs
from ..store.contract import Store
from ..wire.errors import ShunterError
from ..wire.ids import turn_id
from ..wire.messages import (
    AcceptAsk,
    AttemptRef,
    AttemptStatus,
    CancelAsk,
    End,
    Facts,
    FactsAsk,
    Lease,
    LeaseAsk,
    LeaseRef,
    MirrorAsk,
    MirrorReady,
)
from .delivery import close_on_host, deliver_result, has_news, send_base
from .hosts import DISK_TROUBLE, NOT_REACHED, UNKNOWN_OUTCOME, HostEntry, memory_budget_mb
from .job import job_spec, launch_of, prompt_of
from .log import log

BUSY_PAUSE_S = 1.0
TRIES_BEFORE_ACCEPTANCE = 5
FETCH_TRIES = 3
FETCH_LIMIT_S = 1800.0  # of a base from origin, by the host
TRIES_OF_ORIGIN = 12  # with growing pauses: about four minutes
ACTOR = "dispatcher"


class Driver:
    """`advance` takes a turn as far as it goes now; the caller sees to it that one thread at a time has a turn."""

    def __init__(
        self,
        store: Store,
        places: Places,
        hosts: dict[str, HostEntry],
        *,
        on_boundary: Callable[[str], None] = lambda name: None,
        facts_of: Callable[[HostEntry], Facts | None] = lambda entry: None,
        rule_of: Callable[[], RetryRule] = RetryRule,
        on_failure: Callable[[HostEntry, ShunterError], None] = lambda entry, exc: None,
    ) -> None:
        self.store, self.places, self.hosts, self.facts_of = store, places, hosts, facts_of
        self.rule_of, self.on_failure = rule_of, on_failure
        self.on_boundary = on_boundary
        self.told: dict[str, str] = {}
        self.steps: dict[Step, Callable[[Turn], bool]] = {
            Step.WAITING: self._settle_cancelled_row,
            Step.CLAIMED: self._lease,
            Step.LEASED: self._ship,
            Step.SHIPPED: self._accept,
            Step.ACCEPTED: self._follow,
            Step.RUNNING: self._follow,
            Step.ENDED: self._fetch,
            Step.FETCHED: self._settle,
        }

    def advance(self, turn_id: str) -> float | None:
        """Go on until the turn waits for something; seconds after which to look again, None when an event will tell."""
        while True:
            turn = self.store.load_turn(turn_id)
            step = self.steps.get(turn.step)
            if step is None:
                for key in (turn_id, turn_id + " refused", turn_id + " silent"):
                    self.told.pop(key, None)
                return None
            self.on_boundary(f"before {turn.step}")
            try:
                if not step(turn):
                    return None
            except ShunterError as exc:
                self._tell(turn, exc)
                pause_s = self._after_failure(turn, exc)
                if pause_s is not None:
                    return pause_s
            self.on_boundary(f"after {turn.step}")

    def _tell(self, turn: Turn, exc: ShunterError) -> None:
        """In the log, once until step or code change: a host that is away for a night is one line, not thirty thousand.

        The text does not count: one dead machine has ssh say now this, now that.
        """
        kind = f"{turn.step}: {exc.code}"
        if self.told.get(turn.id) != kind:
            self.told[turn.id] = kind
            log(f"turn {turn.id} at {kind}: {exc.text}")

    # --- before acceptance ------------------------------------------------------------------------------------------

    def _settle_cancelled_row(self, turn: Turn) -> bool:
        if turn.cancel_requested_at is None:
            return False
        self._give_up(turn, state=TurnState.CANCELLED, reason=f"cancelled by {turn.cancel_actor} while waiting")
        return False

    def _lease(self, turn: Turn) -> bool:
        if self._is_cancelled_before_acceptance(turn):
            return False
        task, entry = self.store.load_task(turn.task_id), self._host(turn)
        self._end_given_up(turn, entry)
        ask = LeaseAsk(
            attempt_id=self._attempt(turn),
            job_id=turn.id,
            task_id=task.id,
            slots=task.options.slots,
            memory_mb=task.options.memory_mb or 0,
            capacity_slots=entry.config.slots,
            capacity_memory_mb=memory_budget_mb(entry.config, self.facts_of(entry)),
        )
        lease: Lease = entry.client.call("lease.grant", ask)
        if lease.accepted_as is not None:
            return self._adopt(turn, task, entry)
        if lease.token is None:
            self._note_refusal(turn, lease.busy or "no room")
            self._return(turn, reason_code="CAPACITY_BUSY", pause_s=busy_pause_s(turn.attempt_number))
            return False
        return self._move(turn, Step.LEASED, reason=None, lease_token=lease.token)

    def _adopt(self, turn: Turn, task: Task, entry: HostEntry) -> bool:
        """Follow the attempt as which the host has accepted the job: an older store was put back at home since."""
        found: AttemptStatus = entry.client.call("attempt.accept", self._acceptance(turn, task, entry, token=""))
        self.on_boundary("recording adopted")
        reason = f"{entry.name} had accepted it before as {found.attempt_id}, of which there was no record"
        self.store.adopt_attempt(
            turn.id, self._attempt(turn), found.attempt_id, actor=ACTOR, now=time.time(), reason=reason
        )
        return True

    def _end_given_up(self, turn: Turn, entry: HostEntry) -> None:
        """The turn before this one may run on after all: its host came back, and does not know that it was given up."""
        former = self.store.load_turns(turn.task_id)[turn.number - 2] if turn.number > 1 else None
        if former is not None and former.host == entry.name and is_given_up(former):
            ask = CancelAsk(self._attempt(former), former.cancel_actor or "user")
            entry.client.call("attempt.cancel", ask)

    def _note_refusal(self, turn: Turn, words: str) -> None:
        """The host's own words, once until they change."""
        key = turn.id + " refused"
        if self.told.get(key) == words:
            return
        self.told[key] = words
        event = Event(time.time(), "refused", ACTOR, turn.task_id, turn.id, turn.attempt_id, reason=words[:300])
        self.store.record_events([event])

    def _ship(self, turn: Turn) -> bool:
        if self._is_cancelled_before_acceptance(turn):
            return False
        task, entry = self.store.load_task(turn.task_id), self._host(turn)
        with self._renewing(turn, entry):
            ready = self._prepare(turn, task, entry, oid=task.base_oid, origin_url=task.options.origin_url)
        how = "fetched from origin" if ready.fetched else "the mirror had it" if ready.has_base else "pushed"
        return self._move(turn, Step.SHIPPED, reason=how)

    def _prepare(
        self, turn: Turn, task: Task, entry: HostEntry, *, oid: str, origin_url: str | None = None
    ) -> MirrorReady:
        """See to it that the host's mirror has a commit, and pin it there as the task's base."""
        project = self.store.load_project(task)
        ask = MirrorAsk(
            attempt_id=self._attempt(turn),
            token=self._token(turn),
            task_id=task.id,
            project_id=task.project_id,
            object_format=project.object_format,
            base_oid=oid,
            origin_url=origin_url,
        )
        limit_s = FETCH_LIMIT_S if origin_url else None
        ready: MirrorReady = entry.client.call("mirror.prepare", ask, limit_s=limit_s)
        if not ready.has_base:
            send_base(entry, self.places, project, ask, mirror=ready.path)
        return ready

    def _accept(self, turn: Turn) -> bool:
        if self._is_cancelled_before_acceptance(turn):
            return False
        task, entry = self.store.load_task(turn.task_id), self._host(turn)
        ask = self._acceptance(turn, task, entry, token=self._token(turn))
        with self._renewing(turn, entry):
            try:
                status: AttemptStatus = entry.client.call("attempt.accept", ask)
            except ShunterError as exc:
                if exc.code != "RESULT_UNKNOWN" or task.fetched_oid is None:
                    raise
                self._send_result(turn, task, entry, oid=task.fetched_oid)
                status = entry.client.call("attempt.accept", ask)
        return self._move(turn, Step.ACCEPTED, reason=None, session_id=status.session_id)

    def _acceptance(self, turn: Turn, task: Task, entry: HostEntry, *, token: str) -> AcceptAsk:
        brief = read_brief(self.places.prompts_dir, brief_id(turn))
        repeated = self.store.load_turns(task.id)[-1 - turn.repeat_number : -1]
        permission = self._permission(task, turn, brief, entry)
        return AcceptAsk(token, job_spec(task, turn, brief, permission=permission), prompt_of(brief, repeated))

    def _send_result(self, turn: Turn, task: Task, entry: HostEntry, *, oid: str) -> None:
        """To a host that lost it. A push may write the task's base alone, which then is put back."""
        self._prepare(turn, task, entry, oid=oid)
        self._prepare(turn, task, entry, oid=task.base_oid)
        reason = f"{entry.name} did not know the result {oid[:12]} any more; it was sent there from home"
        event = Event(time.time(), "result_sent", ACTOR, task.id, turn.id, turn.attempt_id, reason=reason)
        self.store.record_events([event])

    def _permission(self, task: Task, turn: Turn, brief: Brief, entry: HostEntry) -> str:
        """What can be in force: an agent whose sandbox lacks a program runs without it, which is recorded (T12)."""
        needed = load(brief.adapter).sandbox_programs()
        if task.permission != "workspace" or not needed:
            return task.permission
        facts: Facts = entry.client.call("host.facts", FactsAsk(needed))
        missing = [name for name in needed if facts.programs.get(name) is None]
        if not missing:
            return task.permission
        reason = f"runs unattended: the sandbox of {brief.adapter} needs {', '.join(missing)}, missing on {entry.name}"
        event = Event(time.time(), "permission", ACTOR, task.id, turn.id, turn.attempt_id, reason=reason)
        self.store.record_events([event])
        return "unattended"

    def _is_cancelled_before_acceptance(self, turn: Turn) -> bool:
        """Read before every remote step. A cancelled attempt leaves a tombstone, so it can never start later."""
        if turn.cancel_requested_at is None:
            return False
        status = self._tombstone(turn)
        if status.state != "tombstoned":
            return False  # an earlier leader's acceptance came first: go on, and cancel what runs
        self._give_up(turn, state=TurnState.CANCELLED, reason=f"cancelled by {turn.cancel_actor}", tombstoned=True)
        return True

    def _tombstone(self, turn: Turn) -> AttemptStatus:
        status: AttemptStatus = self._host(turn).client.call(
            "attempt.tombstone", AttemptRef(self._attempt(turn), turn.id)
        )
        return status

    @contextmanager
    def _renewing(self, turn: Turn, entry: HostEntry) -> Iterator[None]:
        """Renew the lease while something long goes on under it."""
        done = threading.Event()
        ref = LeaseRef(self._attempt(turn), self._token(turn))

        def renew() -> None:
            while not done.wait(15.0):
                try:
                    entry.client.call("lease.renew", ref)
                except ShunterError:
                    continue  # the step itself meets the consequence

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()

    # --- from acceptance on -----------------------------------------------------------------------------------------

    def _follow(self, turn: Turn) -> bool:
        entry = self._host(turn)
        attempt_id = self._attempt(turn)
        if turn.cancel_requested_at is not None:
            ask = CancelAsk(attempt_id, turn.cancel_actor or "user")
            status: AttemptStatus = entry.client.call("attempt.cancel", ask)
        else:
            status = entry.client.call("attempt.status", AttemptRef(attempt_id, turn.id))
        if turn.uncertain:
            self._certain(turn, status.state)
        if status.session_id:
            self.store.record_session(turn.task_id, status.session_id)
        self._note_silence(turn, status.silent_s, status.asks)
        if status.state == "ended" and status.end is not None:
            return self._record_end(turn, status, status.end)
        if status.launched_at is not None and turn.step == Step.ACCEPTED:  # what never started goes straight to its end
            return self._move(turn, Step.RUNNING, reason=None, started_at=status.launched_at)
        if status.state in ("unknown", "tombstoned"):
            raise ShunterError("TURN_LOST", f"host {entry.name} knows nothing of attempt {attempt_id}")
        return False

    def _note_silence(self, turn: Turn, silent_s: float | None, asks: str | None) -> None:
        """That the agent says nothing, and that it speaks again: once each (X15)."""
        key = turn.id + " silent"
        if (silent_s is not None) == (key in self.told):
            return
        if silent_s is None:
            del self.told[key]
            kind, reason = "heard", "there is output again"
        else:
            self.told[key] = kind = "silent"
            why = "it may wait for an answer that nobody can give it" if asks is None else f"it asks: {asks[:200]}"
            reason = f"no output for {silent_s:.0f} s: {why}"
        event = Event(time.time(), kind, ACTOR, turn.task_id, turn.id, turn.attempt_id, reason=reason)
        self.store.record_events([event])

    def _note_version(self, turn: Turn, end: End) -> None:
        row = self.store.load_row(turn.id)
        doubt = doubt_version(row.requirements.agent.partition("@")[0], end.agent_version) if row is not None else None
        if doubt is not None:
            reason = f"{end.agent_version}: {doubt}"
            event = Event(time.time(), "version", ACTOR, turn.task_id, turn.id, turn.attempt_id, reason=reason)
            self.store.record_events([event])

    def _record_end(self, turn: Turn, status: AttemptStatus, end: End) -> bool:
        self._note_version(turn, end)
        return self._move(
            turn,
            Step.ENDED,
            reason=f"{end.outcome}: {end.evidence}"[:300],
            state=turn_state_of(end),
            exit_code=end.exit_code,
            signal=end.signal,
            outcome=end,
            error_code=end.error_code,
            error_text=end.error_text,
            started_at=status.launched_at,
            exited_at=status.exited_at,
            ended_at=status.ended_at,
        )

    def _fetch(self, turn: Turn) -> bool:
        """Bring the branch home. What cannot be fetched now is safe on the host, and the turn is settled with that."""
        end = turn.outcome
        publication = end.publication if end else None
        if end is None or publication is None or not has_news(publication):
            return self._settle(turn)
        task = self.store.load_task(turn.task_id)
        failure: ShunterError | None = None
        for attempt in range(FETCH_TRIES):
            try:
                found = deliver_result(self.store, self._host(turn), self.places, task, publication)
                oid = publication.head_oid
                facts: dict[str, object] = {}
                if found.ref is not None:
                    facts = {"head_oid": oid, "fetched_oid": oid, "fetched_ref": found.ref}
                if found.notice is not None:
                    facts["outcome"] = replace(end, publication=found.noted(publication))
                return self._move(turn, Step.FETCHED, reason=found.notice, **facts)
            except ShunterError as exc:
                failure = exc
                if exc.code in NOT_REACHED:
                    raise
                time.sleep(0.2 * attempt)
        assert failure is not None
        return self._settle(
            turn, error=ShunterError("FETCH_FAILED", failure.text, hint=failure.hint or f"shunter fetch {task.id}")
        )

    def _settle(self, turn: Turn, *, error: ShunterError | None = None) -> bool:
        facts = {"error_code": error.code, "error_text": worded(error)} if error else {}
        follows = None if error else self._decide_again(turn)
        self.store.settle_turn(
            turn.id,
            turn.attempt_id,
            turn.step,
            state=turn.state,
            task_state=TaskState.OPEN,
            actor=ACTOR,
            now=time.time(),
            reason=error.text[:300] if error else follows.words if follows else None,
            repeat=self._repeat(turn, follows) if isinstance(follows, Again) else None,
            **facts,  # type: ignore[arg-type]
        )
        self._close_when_asked(turn, delivered=error is None)
        return True

    def _decide_again(self, turn: Turn) -> Again | Stop | None:
        spread = int.from_bytes(os.urandom(2)) / 65535
        overloaded = turn.outcome is not None and turn.outcome.outcome == contract.OVERLOAD
        resumes = overloaded and self._resumes(turn)
        return decide_again(turn, resumes=resumes, rule=self.rule_of(), now=time.time(), spread=spread)

    def _resumes(self, turn: Turn) -> bool:
        """Whether the next turn of the task would go on in the session of this one."""
        task = self.store.load_task(turn.task_id)
        if task.session_id is None:
            return False
        try:
            brief = read_brief(self.places.prompts_dir, brief_id(turn))
            launch = launch_of(task, brief, session_id=task.session_id, permission=task.permission)
        except ShunterError:
            return False
        if not launch.keeps_unanswered and not self._was_answered(turn):
            return False
        return launch.session_id == task.session_id

    def _was_answered(self, turn: Turn) -> bool:
        """Whether anything came of the turns in this turn's session."""
        for each in reversed(self.store.load_turns(turn.task_id)):
            if each.outcome is not None and not did_nothing(each.outcome):
                return True
            if each.fresh_session:
                break
        return False

    def _repeat(self, turn: Turn, again: Again) -> tuple[Turn, Row] | None:
        """The next turn of the task, for the same host; None when somebody else settled this one."""
        row = self.store.load_row(turn.id)
        if row is None:
            return None
        following = Turn(
            turn_id(turn.task_id, turn.number + 1),
            turn.task_id,
            turn.number + 1,
            TurnState.QUEUED,
            Step.WAITING,
            created_at=time.time(),
            repeat_number=again.number,
            repeat_limit=again.limit,
            fresh_session=not again.resumes and self.store.load_task(turn.task_id).session_id is not None,
            account=turn.account,
        )
        place = replace(row, turn_id=following.id, pinned_host=turn.host, not_before=again.at, owner=None)
        return following, place

    def _close_when_asked(self, turn: Turn, *, delivered: bool) -> None:
        task = self.store.load_task(turn.task_id)
        wanted = task.options.close_on
        done = turn.outcome is not None and turn.outcome.outcome == contract.DONE
        if not delivered or wanted == "never" or (wanted == "done" and not done) or task.state != TaskState.OPEN:
            return
        push = self.store.load_push(task.id)
        if push is not None and push.state in UNDELIVERED:
            return  # once origin has it: `close_after_push`
        try:
            close_on_host(self._host(turn), task, delivered_oid=task.fetched_oid, actor=ACTOR, force=False)
        except ShunterError:
            return  # the task stays open; `close` says why when a person asks
        self.store.close_task(task.id, actor=ACTOR, reason=f"close-on {wanted}", now=time.time())
        remove_briefs(self.places.prompts_dir, self.store.load_turns(task.id))

    def close_after_push(self, task_id: str) -> None:
        """What a settled task waited with until origin had its branch."""
        turns = self.store.load_turns(task_id)
        if turns and turns[-1].step == Step.SETTLED and turns[-1].error_code is None:
            self._close_when_asked(turns[-1], delivered=True)

    # --- when something fails ---------------------------------------------------------------------------------------

    def _after_failure(self, turn: Turn, exc: ShunterError) -> float | None:
        """What a failed step means: seconds until the next try, or None to look at the turn again at once."""
        if turn.step in (Step.ACCEPTED, Step.RUNNING) and exc.code == "TURN_LOST":
            self._lose(turn, exc)
            return None
        if turn.step in (Step.CLAIMED, Step.LEASED):
            return self._retry_from_queue(turn, exc)
        if turn.step == Step.SHIPPED and exc.code not in UNKNOWN_OUTCOME:
            return self._after_refused_acceptance(turn, exc)
        if turn.step in (Step.SHIPPED, Step.ACCEPTED, Step.RUNNING, Step.ENDED) and turn.attempt_id:
            self.store.mark_uncertain(
                turn.id, turn.attempt_id, True, actor=ACTOR, now=time.time(), reason=f"{exc.code}: {exc.text}"[:300]
            )
        return 1.0

    def _retry_from_queue(self, turn: Turn, exc: ShunterError) -> float | None:
        # A host that is away, full or unable for a night must not fill the history, and says nothing against the turn.
        if exc.code in (*NOT_REACHED, *DISK_TROUBLE, "LEDGER_DAMAGED", "LEDGER_UNAVAILABLE"):
            if turn.host in self.hosts:
                self.on_failure(self.hosts[turn.host], exc)
            self._return(turn, reason_code=exc.code, pause_s=busy_pause_s(turn.attempt_number))
            return 0.0
        self._release(turn)
        if exc.code == "CHECKOUT_MISSING":
            self._await_checkout(turn, exc)
            return 0.0
        if exc.code == "ORIGIN_UNREACHABLE":
            tries = 1 + sum(each.failure_code == exc.code for each in self.store.load_attempts(turn.id))
            if tries < TRIES_OF_ORIGIN:
                self._note_refusal(turn, f"{exc.code}: {exc.text}")
                self._return(turn, reason_code=exc.code, pause_s=busy_pause_s(tries))
                return 0.0
            exc = ShunterError("BASE_UNAVAILABLE", f"origin did not answer {TRIES_OF_ORIGIN} times: {exc.text}")
        retryable = exc.retryable or exc.code in ("LEASE_LOST", "TOMBSTONED")
        tries = self._tries(turn)
        if retryable and tries < TRIES_BEFORE_ACCEPTANCE:
            self._return(turn, reason_code=exc.code, pause_s=0.5 * 2**tries)
        else:
            self._give_up(turn, state=TurnState.FAILED, reason=exc.text, error=exc)
        return 0.0

    def _await_checkout(self, turn: Turn, exc: ShunterError, *, tombstoned: bool = False) -> None:
        """A person can put it back, or cancel."""
        self._note_refusal(turn, f"{exc.code}: {exc.text}: {exc.hint}")
        pause_s = busy_pause_s(turn.attempt_number)
        self._return(turn, reason_code=exc.code, pause_s=pause_s, tombstoned=tombstoned)

    def _tries(self, turn: Turn) -> int:
        """Attempts so far, without those that only found host, origin or checkout away, or the host taken."""
        away = (*NOT_REACHED, "CHECKOUT_MISSING", "ORIGIN_UNREACHABLE", "CAPACITY_BUSY")
        return sum(attempt.failure_code not in away for attempt in self.store.load_attempts(turn.id))

    def _release(self, turn: Turn) -> None:
        """The slot is free at once, and not when the unused lease has run out."""
        if turn.step == Step.LEASED:
            with suppress(ShunterError):
                ref = LeaseRef(self._attempt(turn), self._token(turn))
                self._host(turn).client.call("lease.release", ref)

    def _after_refused_acceptance(self, turn: Turn, exc: ShunterError) -> float | None:
        try:
            status = self._tombstone(turn)
        except ShunterError:
            return 1.0
        if status.state != "tombstoned":  # accepted after all, by an answer that was lost
            self._move(turn, Step.ACCEPTED, reason="found accepted", session_id=status.session_id)
            return None
        if exc.code == "CHECKOUT_MISSING":
            self._await_checkout(turn, exc, tombstoned=True)
            return 0.0
        tries = self._tries(turn)
        if exc.code in ("LEASE_LOST", "TOMBSTONED", *DISK_TROUBLE) and tries < TRIES_BEFORE_ACCEPTANCE:
            pause_s = 0.5 * 2**tries if exc.code in DISK_TROUBLE else 0.0
            self._return(turn, reason_code=exc.code, pause_s=pause_s, tombstoned=True)
            return 0.0
        self._give_up(turn, state=TurnState.FAILED, reason=exc.text, error=exc, tombstoned=True)
        return None

    def _lose(self, turn: Turn, exc: ShunterError) -> None:
        """The host itself says that it has no record: its ledger was lost. The task stays open, a person decides."""
        self.store.settle_turn(
            turn.id,
            turn.attempt_id,
            turn.step,
            state=TurnState.LOST,
            task_state=TaskState.LOST,
            actor=ACTOR,
            now=time.time(),
            reason=exc.text,
            error_code=exc.code,
            error_text=exc.text,
        )

    # --- records ----------------------------------------------------------------------------------------------------

    def _move(self, turn: Turn, to_step: Step, *, reason: str | None, **facts: object) -> bool:
        """True also when somebody else moved it: the next look at the record decides."""
        self.on_boundary(f"recording {to_step}")
        self.store.move_turn(
            turn.id,
            turn.attempt_id,
            turn.step,
            to_step,
            actor=ACTOR,
            now=time.time(),
            reason=reason,
            **facts,  # type: ignore[arg-type]
        )
        return True

    def _return(self, turn: Turn, *, reason_code: str, pause_s: float, tombstoned: bool = False) -> None:
        self.store.return_row(
            turn.id,
            self._attempt(turn),
            turn.step,
            actor=ACTOR,
            now=time.time(),
            reason_code=reason_code,
            not_before=time.time() + pause_s if pause_s else None,
            tombstoned=tombstoned,
        )

    def _give_up(
        self,
        turn: Turn,
        *,
        state: TurnState,
        reason: str,
        error: ShunterError | None = None,
        tombstoned: bool = False,
    ) -> None:
        """End a turn that no host ever ran."""
        first = turn.number == 1
        self.store.settle_turn(
            turn.id,
            turn.attempt_id,
            turn.step,
            state=state,
            task_state=TaskState.ABANDONED if first else TaskState.OPEN,
            actor=ACTOR,
            now=time.time(),
            reason=reason[:300],
            tombstoned=tombstoned,
            error_code=error.code if error else None,
            error_text=worded(error) if error else None,
        )
        if first:
            remove_briefs(self.places.prompts_dir, [turn])

    def _certain(self, turn: Turn, state: str) -> None:
        self.store.mark_uncertain(
            turn.id, self._attempt(turn), False, actor=ACTOR, now=time.time(), reason=f"the host answered: {state}"
        )

    def _host(self, turn: Turn) -> HostEntry:
        entry = self.hosts.get(turn.host or "")
        if entry is None:
            raise ShunterError("HOST_UNREACHABLE", f"host {turn.host} is not in the configuration any more")
        return entry

    def _attempt(self, turn: Turn) -> str:
        assert turn.attempt_id is not None
        return turn.attempt_id

    def _token(self, turn: Turn) -> str:
        token = self.store.load_attempts(turn.id)[-1].lease_token
        if token is None:
            raise ShunterError("LEASE_LOST", f"attempt {turn.attempt_id} has no lease")
        return token


def busy_pause_s(attempts: int) -> float:
    """A second after the first refusal, twice as much after each more, half a minute at most."""
    return min(30.0, BUSY_PAUSE_S * 2.0 ** min(attempts - 1, 10))


def worded(error: ShunterError) -> str:
    """Text and remedy in one, for a record that has room for one."""
    return f"{error.text}; mend it with: {error.hint}" if error.hint else error.text
