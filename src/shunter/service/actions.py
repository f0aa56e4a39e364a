"""Use cases that change something: cancel, close, fetch, reconcile. Each may be repeated."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..dispatch.delivery import close_on_host, deliver_result, find_checkout, has_news
from ..git.forget import forget_task
from ..git.transfer import import_kept, open_transfer
from ..model.records import Task, Turn
from ..model.states import UNDELIVERED, PushState, Step, TaskState, TurnState
from ..policy.outcome import NOT_AT_HOME
from ..store.briefs import remove_briefs
from ..store.contract import Store
from ..wire.errors import ShunterError
from ..wire.messages import AttemptRef
from .home import Home
from .view import TaskView, load_view
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


def fetch_task(home: Home, prefix: str, *, checkout: str | None = None) -> TaskView:
    """Bring the last result home, again if need be; publishes on the host first where that had failed.

    `checkout`: where to bring it when the one that the task came from has moved.
    """
    task = home.store.find_task(prefix)
    turns = [turn for turn in home.store.load_turns(task.id) if turn.outcome is not None]
    if not turns:
        raise ShunterError("FETCH_FAILED", f"task {task.id} has no result yet", hint=f"shunter wait {task.id}")
    turn = turns[-1]
    end = turn.outcome
    assert end is not None
    entry = home.host(turn.host or "")
    publication = end.publication
    if publication is None and turn.attempt_id is not None:
        status = entry.client.call("attempt.publish", AttemptRef(turn.attempt_id, turn.id))
        end = status.end or end
        publication = end.publication
    if publication is None:
        raise ShunterError("FETCH_FAILED", f"nothing was published: {end.error_text or end.evidence}")
    ref = None
    if has_news(publication):
        ref = deliver_result(home.store, entry, home.places, task, publication, checkout=checkout)
    if ref is not None:
        home.store.mark_fetched(task.id, publication.head_oid, ref=ref, actor="user", now=time.time())
    if turn.error_code in NOT_AT_HOME:
        home.store.record_publication(turn.id, end, actor="user", now=time.time())
    return load_view(home.store, task.id)


def import_kept_work(home: Home, prefix: str) -> list[str]:
    """Bring work that was no part of the result into the user's repository; the refs that were written."""
    task = home.store.find_task(prefix)
    repo = find_checkout(home.store, task, str(Path.cwd()))
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
        raise ShunterError("TASK_BUSY", f"task {task.id} is {view.phrase}", hint=f"shunter cancel {task.id}")
    kept: list[str] = []
    if task.state != TaskState.CLOSED:
        if not discard:
            refuse_unpushed(view)
        gone = discard and task.host not in {host.name for host in home.config.hosts}
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
    if not home.places.store_file.exists():
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
        repairs += [Repair(turn.task_id, f"{turn.step}: asked again") for turn in home.store.open_turns()]
    for task in home.store.list_tasks(states=[TaskState.OPEN, TaskState.LOST], limit=100_000):
        turn = load_view(home.store, task.id).turn
        if turn is None or turn.step != Step.SETTLED or turn.error_code not in NOT_AT_HOME:
            continue
        try:
            fetch_task(home, task.id)
            repairs.append(Repair(task.id, "fetched"))
        except ShunterError as exc:
            repairs.append(Repair(task.id, "fetch", f"{exc.code}: {exc.text}"))
    return repairs
