"""Waiting until tasks are over; asks nobody but the store, and reads only what an event says has changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ..model.states import Step
from ..wire.errors import ShunterError
from .home import Home
from .view import TaskView, load_view

POLL_S = 0.02
WAKE_EVERY_S = 2.0


def is_over(view: TaskView) -> bool:
    """No turn of the task waits, is under way or runs."""
    return view.turn is None or view.turn.step == Step.SETTLED


def wait_for(
    home: Home,
    task_ids: Sequence[str],
    *,
    timeout_s: float | None,
    any_one: bool = False,
    on_change: Callable[[TaskView], None] = lambda view: None,
    on_look: Callable[[TaskView], None] = lambda view: None,
) -> list[TaskView]:
    """Block until all (or any one) are over. Raises WAIT_TIMEOUT; the tasks go on then.

    Keeps a dispatcher at work: one that died is replaced, or nobody would ever end the waiting. `on_look` is called
    with every task that is not over, at the beginning and every two seconds.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    views: dict[str, TaskView] = {}
    seen = home.store.newest_event()
    changed = set(task_ids)
    wake_at = time.monotonic()
    while True:
        for task_id in [each for each in task_ids if each in changed]:
            former, views[task_id] = views.get(task_id), load_view(home.store, task_id)
            if former is None or former.phrase != views[task_id].phrase:
                on_change(views[task_id])
        over = [view for view in views.values() if is_over(view)]
        if len(over) == len(views) or (any_one and over):
            return [views[task_id] for task_id in task_ids]
        if deadline is not None and time.monotonic() >= deadline:
            raise ShunterError(
                "WAIT_TIMEOUT",
                "not over yet: "
                + ", ".join(view.task.id for view in views.values() if not is_over(view))
                + "; nothing was changed",
            )
        if time.monotonic() >= wake_at:
            home.wake()
            for view in views.values():
                if not is_over(view):
                    on_look(view)
            wake_at = time.monotonic() + WAKE_EVERY_S
        time.sleep(POLL_S)
        events = home.store.events_since(seen)
        changed = {event.task_id for event in events if event.task_id is not None}
        seen = events[-1].seq if events else seen
