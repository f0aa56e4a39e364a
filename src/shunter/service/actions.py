"""Use cases that change something: cancel, close, fetch, reconcile. Each may be repeated."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

from ..dispatch.delivery import Delivered, close_on_host, deliver_result, find_checkout, has_news
from ..dispatch.hosts import NOT_REACHED, HostEntry
from ..git.forget import forget_task
from ..git.transfer import import_kept, open_transfer
from ..model.records import Task, Turn
from ..model.states import UNDELIVERED, PushState, Step, TaskState, TurnState
from ..policy.outcome import NOT_AT_HOME, is_given_up, is_lost
from ..store.briefs import remove_briefs
from ..store.contract import Store
from ..wire.errors import ShunterError
from ..wire.ids import number_of, turn_of
from ..wire.messages import AttemptRef, AttemptStatus, CancelAsk, End, LastPublished, Publication, TaskRef
from .home import Home
from .view import TaskView, load_view, without_result
from .waiting import POLL_S, WAKE_EVERY_S, is_over


def cancel_task(home: Home, prefix: str, *, actor: str) -> TaskView:
    """Ask for the end of the task's open turn. A turn that waits ends at once and touches no host (P11)."""
    task = home.store.find_task(prefix)
    turn = home.store.request_cancel(task.id, actor=actor, now=time.time())
    if turn is not None and turn.step == Step.WAITING:
        settle_waiting(home, task, home.store.load_turn(turn.id), actor=actor)
    if turn is not None:
        home.wake()
    return load_view(home.store, task.id)


def give_up_turn(home: Home, prefix: str, *, host: str, actor: str) -> TaskView:
    """Settle a turn whose host cannot be asked as lost, on a person's word that this host does not come back (P13).

    The cancellation stays recorded: should the host answer after all, `reconcile` ends what runs there and brings home
    what it made. A turn that is over stays as it is. Raises USAGE when the turn is on another host or on none,
    TASK_BUSY when the host can be asked, since then it ends by `cancel`.
    """
    task = home.store.find_task(prefix)
    while True:
        view = load_view(home.store, task.id)
        turn = view.turn
        if turn is None or turn.step == Step.SETTLED:
            return view
        if turn.host != host or turn.attempt_id is None:
            where = f"is on {turn.host}" if turn.host else "waits and is on no host"
            hint = f"shunter cancel {task.id}" + (f" --force {turn.host}" if turn.host else "")
            raise ShunterError("USAGE", f"turn {turn.number} of task {task.id} {where}, not on {host}", hint=hint)
        if not turn.uncertain:
            text = f"{host} can be asked: the cancellation of task {task.id} goes on there"
            raise ShunterError("TASK_BUSY", text, hint=f"shunter status {task.id}")
        has_ended = turn.outcome is not None  # what it made stands there, and `fetch` may bring it yet
        home.store.settle_turn(
            turn.id,
            turn.attempt_id,
            turn.step,
            state=turn.state if has_ended else TurnState.LOST,
            task_state=TaskState.OPEN if has_ended else TaskState.LOST,
            actor=actor,
            now=time.time(),
            reason=f"given up with {host}",
            error_code="FETCH_FAILED" if has_ended else "TURN_LOST",
            error_text=f"given up, because {host} could not be asked: {turn.uncertain_reason or 'no answer'}",
        )


def settle_waiting(home: Home, task: Task, turn: Turn, *, actor: str) -> None:
    first = turn.number == 1
    settled = home.store.settle_turn(
        turn.id,
        None,
        Step.WAITING,
        state=TurnState.CANCELLED,
        task_state=TaskState.ABANDONED if first else TaskState.OPEN,
        actor=actor,
        now=time.time(),
        reason="cancelled while waiting",
    )
    if settled and first:
        remove_briefs(home.places.prompts_dir, [turn])
        forget_task(home.places.transfer_dir, home.store.load_project(task).repo_id, task.id)


def fetch_task(home: Home, prefix: str, *, checkout: str | None = None) -> tuple[TaskView, str | None]:
    """Bring the last result home, again if need be; publishes on the host first where that had failed.

    Also what is to be said of a result that was there before.

    `checkout`: where to bring it when the one that the task came from has moved.
    """
    task = home.store.find_task(prefix)
    turns = home.store.load_turns(task.id)
    was_lost = is_lost(turns[-1])
    ended = turns if was_lost else [turn for turn in turns if turn.outcome is not None]
    if not ended:
        raise without_result(task, turns[-1])
    turn = ended[-1]
    entry = home.host(turn.host or "")
    end = turn.outcome or _end_of_lost(entry, turn)
    publication = end.publication
    if publication is None and turn.attempt_id is not None:
        status = entry.client.call("attempt.publish", AttemptRef(turn.attempt_id, turn.id))
        end = status.end or end
        publication = end.publication
    if publication is None:
        raise ShunterError("FETCH_FAILED", f"nothing was published: {end.error_text or end.evidence}")
    newer, notice = _published_since(entry, turn)
    publication = newer or publication
    found = Delivered(None)
    if has_news(publication):
        found = deliver_result(home.store, entry, home.places, task, publication, again=True, checkout=checkout)
    if found.ref is not None:
        home.store.mark_fetched(task.id, publication.head_oid, ref=found.ref, actor="user", now=time.time())
    if was_lost or turn.error_code in NOT_AT_HOME:
        noted = replace(end, publication=found.noted(publication))
        home.store.record_publication(turn.id, noted, actor="user", now=time.time())
    told = [words for words in (notice, found.notice) if words is not None]
    return load_view(home.store, task.id), "; ".join(told) or None


def _published_since(entry: HostEntry, turn: Turn) -> tuple[Publication | None, str | None]:
    """What the host published in a later turn, of which home lost the record, and words for that."""
    try:
        last: LastPublished = entry.client.call("task.published", TaskRef(turn.task_id))
    except ShunterError as exc:
        if exc.code in NOT_REACHED:
            raise
        return None, None  # an older helper does not know the method
    if last.attempt_id is None or last.publication is None or number_of(turn_of(last.attempt_id)) <= turn.number:
        return None, None
    words = f"{entry.name} published {last.publication.head_oid[:12]} since, in a turn of which there is no record here"
    return last.publication, words


def _end_of_lost(entry: HostEntry, turn: Turn) -> End:
    """What the host, asked once more, tells of a turn that was given up or whose record it had lost.

    Raises FETCH_FAILED while it runs there, which ends it when that was asked for, or when nothing is known of it.
    """
    assert turn.attempt_id is not None
    status: AttemptStatus = entry.client.call("attempt.status", AttemptRef(turn.attempt_id, turn.id))
    if status.end is not None:
        return status.end
    if status.state in ("unknown", "tombstoned"):
        text = f"{entry.name} has no record of turn {turn.number} of task {turn.task_id}"
        hint = f"its workspace may hold what it did: shunter say {turn.task_id} … goes on there"
        raise ShunterError("FETCH_FAILED", text, hint=hint)
    text = f"turn {turn.number} of task {turn.task_id} still runs on {entry.name}"
    if is_given_up(turn):
        entry.client.call("attempt.cancel", CancelAsk(turn.attempt_id, turn.cancel_actor or "user"))
        text += " and is being ended"
    raise ShunterError("FETCH_FAILED", text, hint=f"then: shunter fetch {turn.task_id}")


def import_kept_work(home: Home, prefix: str) -> list[str]:
    """Bring work that was no part of the result into the user's repository; the refs that were written."""
    task = home.store.find_task(prefix)
    repo = find_checkout(home.store, home.places, task, str(Path.cwd()))
    transfer = open_transfer(str(home.places.transfer_dir), repo)
    return list(import_kept(repo, transfer, host_name=task.host or "", task_id=task.id))


@dataclass(frozen=True, slots=True)
class ClosedTask:
    view: TaskView
    kept: tuple[str, ...]  # what the host could not remove, and why


def close_task(home: Home, prefix: str, *, discard: bool, actor: str) -> ClosedTask:
    """Remove the workspace and forget the session; the fetched branch stays. Refused while a turn is not over.

    A repeat that waits is given up: nobody asked for it but the task that is to be closed.

    Raises RESULT_UNDELIVERED when home does not have what the last turn published, unless `discard`.
    """
    task = home.store.find_task(prefix)
    view = load_view(home.store, task.id)
    if view.turn is not None and view.turn.repeat_number and view.turn.step == Step.WAITING:
        view = cancel_task(home, task.id, actor=actor)
        task = view.task
    if not is_over(view):
        hint = f"shunter cancel {task.id}"
        if view.turn is not None and view.turn.uncertain and view.turn.cancel_requested_at is not None:
            hint += f" --force {view.turn.host} gives up a turn whose host does not come back"
        raise ShunterError("TASK_BUSY", f"task {task.id} is {view.phrase}", hint=hint)
    kept: list[str] = []
    if task.state != TaskState.CLOSED:
        if not discard:
            refuse_unpushed(view)
        gone = task.host is not None and task.host not in {host.name for host in home.config.hosts}
        if gone and not discard:
            text = f"host {task.host}, where the workspace of task {task.id} is or was, is not in the pool"
            hint = f"add it again, or shunter close --discard {task.id} forgets what may be there"
            raise ShunterError("HOST_UNKNOWN", text, hint=hint)
        if task.host is not None and not gone:
            entry = home.host(task.host)
            kept = close_on_host(entry, task, delivered_oid=task.fetched_oid, actor=actor, force=discard)
        home.store.close_task(task.id, actor=actor, reason="discard" if discard else "closed", now=time.time())
    remove_briefs(home.places.prompts_dir, home.store.load_turns(task.id))
    repo_id = home.store.load_project(task).repo_id
    forget_task(home.places.transfer_dir, repo_id, task.id, kept_work=discard)
    return ClosedTask(load_view(home.store, task.id), tuple(kept))


def undelivered_on(home: Home, host: str) -> list[str]:
    """Tasks whose last result is on that host alone, as far as is known here."""
    if not home.was_used:
        return []
    tasks = home.store.list_tasks(states=[TaskState.OPEN, TaskState.LOST], limit=100_000)
    turns = home.store.load_latest_turns([task.id for task in tasks if task.host == host])
    return sorted(turn.task_id for turn in turns.values() if turn.error_code in NOT_AT_HOME)


def refuse_unpushed(view: TaskView) -> None:
    push = view.push
    if push is not None and push.state in UNDELIVERED:
        why = f"{push.error_code}: {push.error_text}" if push.error_code else "it is being pushed"
        raise ShunterError(
            "RESULT_UNDELIVERED",
            f"branch {push.branch} of task {push.task_id} is not on {push.url} yet: {why}",
            hint=f"shunter publish {push.task_id} --retry, or give it up with close --discard",
        )


def retry_push(home: Home, prefix: str, *, actor: str) -> TaskView:
    """Have what is not on origin yet tried again now. Raises USAGE for a task that nothing is pushed of."""
    view = require_push(home.store, prefix)
    if home.store.retry_push(view.task.id, actor=actor, now=time.time()):
        home.wake()
    return load_view(home.store, view.task.id)


def require_push(store: Store, prefix: str) -> TaskView:
    view = load_view(store, store.find_task(prefix).id)
    if view.push is None:
        text = f"task {view.task.id} was submitted without --publish push, so its result goes home alone"
        hint = f"git push origin {view.ref or 'REF'}:refs/heads/BRANCH"
        raise ShunterError("USAGE", text, hint=hint)
    return view


def wait_push(home: Home, task_id: str, *, timeout_s: float | None, one_try: bool = False) -> TaskView:
    """Block until nothing happens by itself any more: pushed, refused, or waiting for a person. Raises WAIT_TIMEOUT.

    `one_try`: only until the next try has ended, also when it failed and another one is due.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    wake_at = time.monotonic()
    while True:
        view = load_view(home.store, task_id)
        push = view.push
        if push is None or (one_try and push.state != PushState.PENDING):
            return view
        if is_over(view) and push.next_try_at is None:
            return view
        if deadline is not None and time.monotonic() >= deadline:
            raise ShunterError("WAIT_TIMEOUT", f"branch {push.branch} is {push.state}; nothing was changed")
        if time.monotonic() >= wake_at:
            home.wake()
            wake_at = time.monotonic() + WAKE_EVERY_S
        time.sleep(POLL_S)


@dataclass(frozen=True, slots=True)
class Repair:
    task_id: str
    what: str
    error: str | None = None


def reconcile(home: Home) -> list[Repair]:
    """Start a dispatcher that asks about everything under way, and bring home what was left behind (P14)."""
    repairs = []
    for task in home.store.list_tasks(states=[TaskState.OPEN, TaskState.LOST], limit=100_000):
        push = home.store.load_push(task.id) if task.options.push_branch is not None else None
        if push is not None and push.state in (PushState.PENDING, PushState.FAILED):
            retry_push(home, task.id, actor="user")
            repairs.append(Repair(task.id, f"push to {push.url}: tried again"))
    if home.store.open_turns():
        home.wake(ask_all=True)
        repairs += [Repair(turn.task_id, f"{turn.step}: is being asked after") for turn in home.store.open_turns()]
    for task in home.store.list_tasks(states=[TaskState.OPEN, TaskState.LOST], limit=100_000):
        turn = load_view(home.store, task.id).turn
        if turn is None or turn.step != Step.SETTLED:
            continue
        was_given_up = is_given_up(turn)
        if turn.error_code not in NOT_AT_HOME and not was_given_up:
            continue
        try:
            fetch_task(home, task.id)
            repairs.append(Repair(task.id, "fetched"))
        except ShunterError as exc:
            if not (was_given_up and exc.code in (*NOT_REACHED, "HOST_UNKNOWN")):  # as whoever gave it up expected
                repairs.append(Repair(task.id, "fetch", f"{exc.code}: {exc.text}"))
    return repairs
