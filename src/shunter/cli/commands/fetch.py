"""`shunter fetch`."""

from __future__ import annotations

import click

from ...service.actions import fetch_task
from ...service.home import Home
from ..output import emit, json_option, say, task_argument, view_record


@click.command("fetch")
@task_argument()
@json_option
def command(task: str, as_json: bool) -> None:
    """Bring a result home again.

    Results come home by themselves; this repeats it, after the repository or the host was away, and publishes on the
    host first where that had failed.
    """
    view = fetch_task(Home(), task)
    if as_json:
        emit(view_record(view))
    elif view.ref:
        say(f"{view.ref.removeprefix('refs/remotes/')}  {view.task.fetched_oid}")
    else:
        say(f"{view.task.id}  made no commits, there is nothing to fetch")
