"""`shunter close`."""

from __future__ import annotations

import click

from ...service.actions import close_task
from ...service.home import Home
from ..output import complete_task, emit, json_option, say, view_record
from ..text import visible


@click.command("close")
@click.argument("tasks", nargs=-1, required=True, shell_complete=complete_task)
@click.option("--discard", is_flag=True, help="Even if the last result is not at home; it is lost then.")
@json_option
def command(tasks: tuple[str, ...], discard: bool, as_json: bool) -> None:
    """Remove a task's workspace; the branch stays.

    Its logs and prompt go as well, and work that was kept on the host only (see the notes of `result`). Refused while
    a turn is not over, and while home does not have what the last turn published.
    """
    home = Home()
    for prefix in tasks:
        closed = close_task(home, prefix, discard=discard, actor="user")
        if as_json:
            emit({**view_record(closed.view), "kept": list(closed.kept)})
            continue
        say(f"{closed.view.task.id}  {closed.view.task.state}")
        publication = closed.view.turn.outcome.publication if closed.view.turn and closed.view.turn.outcome else None
        if publication and publication.kept and not discard:
            say(f"  work on other branches stays at home: shunter fetch --kept {closed.view.task.id}")
        for left in closed.kept:
            say(f"  could not be removed: {visible(left)}")
