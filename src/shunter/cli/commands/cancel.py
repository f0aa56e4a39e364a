"""`shunter cancel`."""

from __future__ import annotations

import click

from ...service.actions import cancel_task
from ...service.home import Home
from ...service.waiting import is_over, wait_for
from ...wire.errors import ShunterError
from ..output import complete_task, emit, json_option, say, view_record


@click.command("cancel")
@click.argument("tasks", nargs=-1, required=True, shell_complete=complete_task)
@click.option("--no-wait", is_flag=True, help="Do not wait (30 seconds at most) until the processes are gone.")
@json_option
def command(tasks: tuple[str, ...], no_wait: bool, as_json: bool) -> None:
    """End a task's turn, waiting or running.

    A running agent gets TERM, ten seconds, then KILL, with everything that it started; its work is kept and comes
    back as a branch. Repeating it is harmless, a turn that is over stays as it is.
    """
    home = Home()
    views = [cancel_task(home, prefix, actor="user") for prefix in tasks]
    if not no_wait:
        try:
            views = wait_for(home, [view.task.id for view in views], timeout_s=30)
        except ShunterError as exc:
            if exc.code != "WAIT_TIMEOUT":
                raise
            text = "the cancellation is accepted and goes on"
            raise ShunterError("WAIT_TIMEOUT", text, hint="shunter status") from exc
    for view in views:
        if as_json:
            emit(view_record(view))
        else:
            say(f"{view.task.id}  {view.phrase if is_over(view) else 'cancelling'}")
