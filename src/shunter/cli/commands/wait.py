"""`shunter wait`."""

from __future__ import annotations

import click

from ...policy.outcome import exit_status_of, worst_status
from ...service.home import Home
from ...service.view import TaskView
from ...service.waiting import is_over, wait_for
from ..durations import DURATION
from ..obstacles import obstacle_teller
from ..output import complete_task, emit, json_option, say, view_record
from ..text import visible
from .list import state_words


@click.command("wait")
@click.argument("tasks", nargs=-1, required=True, shell_complete=complete_task)
@click.option("--timeout", type=DURATION, help="Give up waiting after this time (exit 70); the tasks go on.")
@click.option("--any", "any_one", is_flag=True, help="Until one of them is over.")
@json_option
@click.pass_context
def command(ctx: click.Context, tasks: tuple[str, ...], timeout: float | None, any_one: bool, as_json: bool) -> None:
    """Block until tasks are over.

    Prints a line whenever one changes (with --json one record a line), and tells on standard error why one does not
    begin that no host takes, or what is to be mended on its host, again when that changes. The exit status is the
    agent's own for one task, and for several 0 or, when any ended badly, 1. Ctrl-C ends the waiting, never a task.
    """
    home = Home()
    ids = [home.store.find_task(prefix).id for prefix in tasks]

    def tell(view: TaskView) -> None:
        if as_json:
            emit(view_record(view))
        else:
            say(f"{view.task.id}  {state_words(view):<12}  {visible(view.task.title)}")

    teller = obstacle_teller(home)
    views = wait_for(home, ids, timeout_s=timeout, any_one=any_one, on_change=tell, on_look=teller)
    turns = [view.turn for view in views if is_over(view) and view.turn is not None]
    ctx.exit(exit_status_of(turns[0]) if len(ids) == 1 else worst_status(turns))
