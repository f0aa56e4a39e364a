"""`shunter cancel`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import click

from ...service.actions import cancel_task, give_up_turn
from ...service.home import Home
from ...service.view import TaskView, load_view
from ...service.waiting import is_over, wait_for
from ...wire.errors import ShunterError
from ..output import complete_task, emit, json_option, say, view_record

ASKED_S = 5.0


@click.command("cancel")
@click.argument("tasks", nargs=-1, required=True, shell_complete=complete_task)
@click.option(
    "--force", "host", metavar="HOST", help="Give the turn up as lost, when HOST does not answer and never will again."
)
@click.option("--no-wait", is_flag=True, help="Do not wait (30 seconds at most) until the processes are gone.")
@json_option
def command(tasks: tuple[str, ...], host: str | None, no_wait: bool, as_json: bool) -> None:
    """End a task's turn, waiting or running.

    A running agent gets TERM, ten seconds, then KILL, with everything that it started; its work is kept and comes
    back as a branch. Repeating it is harmless, a turn that is over stays as it is.

    A host that cannot be asked is told as soon as it answers. With --force and its name you say that it will not: the
    turn is lost at once, whatever still runs there. Should it come back, `shunter reconcile` ends and fetches that.
    """
    home = Home()
    views = [cancel_task(home, prefix, actor="user") for prefix in tasks]
    ids = [view.task.id for view in views]
    if host is not None:
        with _suppress_timeout():
            wait_for(home, ids, timeout_s=ASKED_S)  # it may answer after all
        views = [give_up_turn(home, task_id, host=host, actor="user") for task_id in ids]
    elif not no_wait:
        with _suppress_timeout():
            wait_for(home, ids, timeout_s=30)
        views = [load_view(home.store, task_id) for task_id in ids]
        open_views = [view for view in views if not is_over(view)]
        if open_views:
            raise _still_open(open_views)
    for view in views:
        if as_json:
            emit(view_record(view))
        else:
            say(f"{view.task.id}  {view.phrase if is_over(view) else 'cancelling'}")


@contextlib.contextmanager
def _suppress_timeout() -> Iterator[None]:
    try:
        yield
    except ShunterError as exc:
        if exc.code != "WAIT_TIMEOUT":
            raise


def _still_open(views: Sequence[TaskView]) -> ShunterError:
    """The cancellations are stored; whether their hosts heard of them decides what a person can do."""
    unheard = [view.turn for view in views if view.turn is not None and view.turn.uncertain]
    ids = " ".join(view.task.id for view in views)
    text = "the cancellation is stored and goes on"
    if not unheard:
        return ShunterError("WAIT_TIMEOUT", text, hint=f"shunter status {ids}")
    why = unheard[0].uncertain_reason or "no answer"
    text = f"the cancellation is stored, but {unheard[0].host} cannot be asked: {why}; it is told as soon as it answers"
    hint = f"if it never will: shunter cancel {' '.join(turn.task_id for turn in unheard)} --force {unheard[0].host}"
    return ShunterError("WAIT_TIMEOUT", text, hint=hint)
