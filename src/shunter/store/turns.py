"""The moves of a turn through its steps: the writing half of the store that guards by `model.states`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from ..model import states
from ..model.records import Event, Row, Task, Turn
from ..model.states import AttemptState, Step, TaskState, TurnState
from ..wire.codec import dumps
from ..wire.errors import ShunterError
from ..wire.messages import End
from . import columns

if TYPE_CHECKING:  # a class that only annotations name costs every command its making
    from .contract import Facts

# Times are set by the move itself; started and ended may be known better by the host.
_TIME_OF_STEP = {
    Step.LEASED: "leased_at",
    Step.SHIPPED: "shipped_at",
    Step.ACCEPTED: "accepted_at",
    Step.RUNNING: "started_at",
    Step.ENDED: "ended_at",
    Step.FETCHED: "fetched_at",
    Step.SETTLED: "settled_at",
}
_TURN_FACTS = ("exit_code", "signal", "error_code", "error_text", "started_at", "exited_at", "ended_at")
_TASK_FACTS = ("session_id", "head_oid", "fetched_oid", "fetched_ref")


class TurnWrites:
    """Needs `_write`, `_run`, `_record` and the readers of the class that mixes it in."""

    def _write(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _run(self, name: str, values: dict[str, Any]) -> sqlite3.Cursor:
        raise NotImplementedError

    def _record(self, events: Iterable[Event]) -> None:
        raise NotImplementedError

    def _records(self, name: str, **values: Any) -> list[sqlite3.Row]:
        raise NotImplementedError

    def load_turn(self, turn_id: str) -> Turn:
        raise NotImplementedError

    def load_task(self, task_id: str) -> Task:
        raise NotImplementedError

    def load_row(self, turn_id: str) -> Row | None:
        raise NotImplementedError

    def _insert_turn(self, turn: Turn, row: Row) -> Row:
        raise NotImplementedError

    def _want_push(self, task_id: str, end: End, *, actor: str, now: float) -> None:
        raise NotImplementedError

    def _release_branch(self, task_id: str, *, now: float) -> None:
        raise NotImplementedError

    def claim_row(self, turn_id: str, *, host: str, attempt_id: str, owner: str, now: float) -> Turn | None:
        values = {"id": turn_id, "host": host, "attempt_id": attempt_id, "owner": owner, "now": now}
        with self._write():
            if self._run("claim_turn", values).rowcount != 1:
                return None
            turn = self.load_turn(turn_id)
            attempt = {"id": attempt_id, "turn_id": turn_id, "number": turn.attempt_number, "host": host, "now": now}
            self._run("insert_attempt", attempt)
            self._run("claim_row", {"turn_id": turn_id, "owner": owner})
            self._record([_stepped(turn, Step.WAITING, Step.CLAIMED, actor=owner, now=now, reason=host)])
        return turn

    def return_row(
        self,
        turn_id: str,
        attempt_id: str,
        from_step: Step,
        *,
        actor: str,
        now: float,
        reason_code: str,
        not_before: float | None = None,
        tombstoned: bool = False,
    ) -> bool:
        _check_step(from_step, Step.WAITING)
        with self._write():
            turn = self.load_turn(turn_id)
            if turn.attempt_id != attempt_id or turn.step != from_step:
                return False
            if not tombstoned and (turn.uncertain or from_step in states.TOMBSTONE_STEPS):
                raise _fault(f"turn {turn_id} must not return from {from_step}: its host gave no tombstone")
            self._run("return_turn", {"id": turn_id, "attempt_id": attempt_id, "from_step": from_step.value})
            self._end_attempt(attempt_id, tombstoned=tombstoned, now=now, failure_code=reason_code)
            self._run("return_row", {"turn_id": turn_id, "not_before": not_before, "error_code": reason_code})
            self._record([_stepped(turn, from_step, Step.WAITING, actor=actor, now=now, reason=reason_code)])
            if from_step == Step.ACCEPTED:
                task = self.load_task(turn.task_id)
                self._move_task(task, TaskState.QUEUED, actor=actor, now=now, reason=reason_code)
                if turn.number == 1:
                    self._run("record_task_host", {"id": task.id, "host": None})
        return True

    def move_turn(
        self,
        turn_id: str,
        attempt_id: str | None,
        expect_step: Step,
        to_step: Step,
        *,
        actor: str,
        now: float,
        reason: str | None = None,
        state: TurnState | None = None,
        **facts: Unpack[Facts],
    ) -> bool:
        _check_step(expect_step, to_step)
        if to_step in (Step.WAITING, Step.CLAIMED, Step.SETTLED):
            raise _fault(f"the step to {to_step} has a call of its own")
        with self._write():
            turn = self.load_turn(turn_id)
            if turn.attempt_id != attempt_id or turn.step != expect_step:
                return False
            self._write_turn(
                turn, to_step, _state_at(turn, to_step, state), actor=actor, now=now, reason=reason, facts=facts
            )
            if to_step == Step.ACCEPTED:
                self._note_acceptance(turn, actor=actor, now=now, reason=reason)
            if to_step == Step.ENDED and attempt_id is not None:
                self._end_attempt(attempt_id, tombstoned=False, now=now, failure_code=facts.get("error_code"))
        return True

    def settle_turn(
        self,
        turn_id: str,
        attempt_id: str | None,
        expect_step: Step,
        *,
        state: TurnState,
        task_state: TaskState,
        actor: str,
        now: float,
        reason: str | None = None,
        tombstoned: bool = False,
        repeat: tuple[Turn, Row] | None = None,
        **facts: Unpack[Facts],
    ) -> bool:
        _check_step(expect_step, Step.SETTLED)
        with self._write():
            turn = self.load_turn(turn_id)
            if turn.attempt_id != attempt_id or turn.step != expect_step:
                return False
            if state not in states.FINAL_TURN_STATES:
                raise _fault(f"{state} is no end of a turn")
            self._write_turn(
                turn,
                Step.SETTLED,
                _state_at(turn, Step.SETTLED, state),
                actor=actor,
                now=now,
                reason=reason,
                facts=facts,
            )
            if attempt_id is not None:
                code = facts.get("error_code") or turn.error_code
                self._end_attempt(attempt_id, tombstoned=tombstoned, now=now, failure_code=code)
            place = self.load_row(turn_id)
            self._delete_row(turn_id)
            following = self._take_follow_up(turn)
            if following is not None and place is not None:  # what interrupts goes on where the turn was
                following = (following[0], replace(following[1], seq=place.seq))
            if following is None and turn.cancel_requested_at is None:
                following = repeat
            if following is not None and task_state != TaskState.ABANDONED:
                task_state = TaskState.QUEUED
                self._insert_turn(*following)
            self._move_task(self.load_task(turn.task_id), task_state, actor=actor, now=now, reason=reason)
        return True

    def adopt_attempt(
        self, turn_id: str, attempt_id: str, found_id: str, *, actor: str, now: float, reason: str
    ) -> bool:
        _check_step(Step.CLAIMED, Step.ACCEPTED)
        names = {"id": turn_id, "attempt_id": attempt_id, "found_id": found_id}
        with self._write():
            if self._run("adopt_attempt", names).rowcount != 1:
                return False
            self._run("rename_attempt", names)
            turn = self.load_turn(turn_id)
            state = _state_at(turn, Step.ACCEPTED, None)
            self._write_turn(turn, Step.ACCEPTED, state, actor=actor, now=now, reason=reason, facts={})
            self._note_acceptance(turn, actor=actor, now=now, reason=reason)
        return True

    def mark_uncertain(
        self, turn_id: str, attempt_id: str, uncertain: bool, *, actor: str, now: float, reason: str | None = None
    ) -> bool:
        with self._write():
            turn = self.load_turn(turn_id)
            values = {"id": turn_id, "attempt_id": attempt_id, "uncertain": int(uncertain)}
            changed = self._run("mark_uncertain", {**values, "reason": reason if uncertain else None}).rowcount == 1
            if changed and turn.uncertain != uncertain:
                kind = "uncertain" if uncertain else "certain"
                self._record([_event(turn, kind, actor=actor, now=now, reason=reason)])
        return changed

    def record_publication(self, turn_id: str, end: End, *, actor: str, now: float) -> bool:
        with self._write():
            turn = self.load_turn(turn_id)
            changed = self._run("record_publication", {"id": turn_id, "outcome": dumps(end)}).rowcount == 1
            if changed:
                self._record([_event(turn, "mended", actor=actor, now=now, reason=turn.error_code)])
                self._want_push(turn.task_id, end, actor=actor, now=now)
        return changed

    def request_cancel(self, task_id: str, *, actor: str, now: float) -> Turn | None:
        with self._write():
            self.load_task(task_id)
            found = self._records("load_open_turn", task_id=task_id)
            if not found:
                return None
            turn = columns.read_turn(found[0])
            self._cancel(turn, actor=actor, now=now)
            given_up = self._take_follow_up(turn)
            if given_up is not None:
                reason = f"the message of turn {given_up[0].number} is given up"
                self._record([_event(turn, "cancel_requested", actor=actor, now=now, reason=reason)])
        return turn

    def interrupt_turn(self, turn: Turn, row: Row, *, actor: str, now: float) -> bool:
        with self._write():
            found = self._records("load_open_turn", task_id=turn.task_id)
            if not found or found[0]["number"] != turn.number - 1:
                return False
            present = columns.read_turn(found[0])
            if self._follow_up(present) is not None:
                raise ShunterError("TASK_BUSY", f"another message waits for the end of turn {present.number}")
            self._cancel(present, actor=actor, now=now)
            self._run("insert_follow_up", {"task_id": turn.task_id, "turn": dumps(turn), "place": dumps(row)})
            reason = f"turn {turn.number} follows when this one is over"
            self._record([_event(present, "interrupted", actor=actor, now=now, reason=reason)])
        return True

    def load_follow_up(self, turn: Turn) -> Turn | None:
        found = self._follow_up(turn)
        return found[0] if found is not None else None

    # Pieces of the transactions above

    def _note_acceptance(self, turn: Turn, *, actor: str, now: float, reason: str | None) -> None:
        values = {"id": turn.attempt_id, "state": "accepted", "failure_code": None, "ended_at": None}
        self._run("move_attempt", values)
        self._run("record_task_host", {"id": turn.task_id, "host": turn.host})
        self._move_task(self.load_task(turn.task_id), TaskState.ACTIVE, actor=actor, now=now, reason=reason)

    def _cancel(self, turn: Turn, *, actor: str, now: float) -> None:
        if self._run("request_cancel", {"id": turn.id, "actor": actor, "now": now}).rowcount == 1:
            self._record([_event(turn, "cancel_requested", actor=actor, now=now)])

    def _follow_up(self, turn: Turn) -> tuple[Turn, Row] | None:
        """What comes right behind the turn. Anything else was left by a dispatcher too old to know of follow-ups."""
        found = self._records("load_follow_up", task_id=turn.task_id)
        following = columns.read_follow_up(turn.task_id, found[0]) if found else None
        return following if following is not None and following[0].number == turn.number + 1 else None

    def _take_follow_up(self, turn: Turn) -> tuple[Turn, Row] | None:
        found = self._follow_up(turn)
        self._run("delete_follow_up", {"task_id": turn.task_id})
        return found

    def _write_turn(
        self, turn: Turn, to_step: Step, state: TurnState, *, actor: str, now: float, reason: str | None, facts: Facts
    ) -> None:
        outcome = facts.get("outcome")
        times: dict[str, float | None] = dict.fromkeys(_TIME_OF_STEP.values())
        given = {name: facts.get(name) for name in _TURN_FACTS if facts.get(name) is not None}
        values = {**dict.fromkeys(_TURN_FACTS), **times, _TIME_OF_STEP[to_step]: now, **given}
        values |= {"id": turn.id, "attempt_id": turn.attempt_id, "from_step": turn.step.value, "to_step": to_step.value}
        values |= {"state": state.value, "outcome": None if outcome is None else dumps(outcome)}
        self._run("move_turn", values)
        task_facts = {name: facts.get(name) for name in _TASK_FACTS}
        if outcome is not None:
            published = outcome.publication.head_oid if outcome.publication else None
            task_facts["head_oid"] = task_facts["head_oid"] or published
        task_facts["renamed_session"] = outcome.renamed_session if outcome is not None else None
        last_outcome = None if outcome is None else outcome.outcome
        if last_outcome or any(task_facts.values()):
            self._run("record_task_facts", {"id": turn.task_id, "last_outcome": last_outcome, **task_facts})
        if facts.get("lease_token") is not None:
            self._run("record_lease_token", {"id": turn.attempt_id, "lease_token": facts.get("lease_token")})
        self._record([_stepped(turn, turn.step, to_step, actor=actor, now=now, reason=reason, state=state)])
        if outcome is not None:
            self._want_push(turn.task_id, outcome, actor=actor, now=now)

    def _move_task(self, task: Task, to: TaskState, *, actor: str, now: float, reason: str | None) -> None:
        if task.state == to:
            return
        if not states.may_move_task(task.state, to):
            raise _fault(f"task {task.id} must not go from {task.state} to {to}")
        if to == TaskState.CLOSED:
            self._run("close_task", {"id": task.id, "from_state": task.state.value, "now": now})
        else:
            self._run("move_task", {"id": task.id, "from_state": task.state.value, "to_state": to.value})
        if to in (TaskState.CLOSED, TaskState.ABANDONED):
            self._release_branch(task.id, now=now)
        moved = Event(
            at=now, kind="task", actor=actor, task_id=task.id, from_state=task.state, to_state=to, reason=reason
        )
        self._record([moved])

    def _end_attempt(self, attempt_id: str, *, tombstoned: bool, now: float, failure_code: str | None) -> None:
        """An attempt that is over already stays as it is."""
        found = self._records("load_attempt_state", id=attempt_id)
        ran = bool(found) and found[0]["state"] == AttemptState.ACCEPTED
        state = AttemptState.TOMBSTONED if tombstoned else AttemptState.ENDED if ran else AttemptState.FAILED
        values = {"id": attempt_id, "state": state.value, "failure_code": failure_code, "ended_at": now}
        self._run("move_attempt", values)

    def _delete_row(self, turn_id: str) -> None:
        for row in self._records("load_shape", turn_id=turn_id):
            self._run("delete_row", {"turn_id": turn_id})
            self._run("delete_unused_shape", {"id": row["shape_id"]})


def _state_at(turn: Turn, to_step: Step, given: TurnState | None) -> TurnState:
    """The turn's state after the step; raises INTERNAL for a move that the table does not have."""
    state = states.STATE_OF_STEP.get(to_step) or given or turn.state
    if given not in (None, state):
        raise _fault(f"turn {turn.id} cannot be {given} at {to_step}")
    if to_step not in states.STATE_OF_STEP and state not in states.FINAL_TURN_STATES:
        raise _fault(f"turn {turn.id} needs its final state at {to_step}")
    if not states.may_move_turn(turn.state, state):
        raise _fault(f"turn {turn.id} must not go from {turn.state} to {state}")
    return state


def _check_step(old: Step, new: Step) -> None:
    if not states.may_step(old, new):
        raise _fault(f"no way leads from {old} to {new}")


def _fault(text: str) -> ShunterError:
    return ShunterError("INTERNAL", text, hint="please report this")


def _event(turn: Turn, kind: str, *, actor: str, now: float, reason: str | None = None) -> Event:
    attempt = turn.attempt_id
    return Event(
        at=now, kind=kind, actor=actor, task_id=turn.task_id, turn_id=turn.id, attempt_id=attempt, reason=reason
    )


def _stepped(
    turn: Turn, old: Step, new: Step, *, actor: str, now: float, reason: str | None, state: TurnState | None = None
) -> Event:
    words = [state.value if state in states.FINAL_TURN_STATES else None, reason]
    return Event(
        at=now,
        kind="turn",
        actor=actor,
        task_id=turn.task_id,
        turn_id=turn.id,
        attempt_id=turn.attempt_id,
        from_state=old.value,
        to_state=new.value,
        reason=": ".join(word for word in words if word) or None,
    )
