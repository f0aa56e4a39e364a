"""`shunter fetch`."""

from __future__ import annotations

from pathlib import Path

import click

from ...service.actions import fetch_task, import_kept_work
from ...service.home import Home
from ..output import emit, json_option, say, task_argument, view_record


@click.command("fetch")
@task_argument()
@click.option("--kept", is_flag=True, help="Also work that the agent left on branches of its own.")
@json_option
def command(task: str, kept: bool, as_json: bool) -> None:
    """Bring a result home again.

    Results come home by themselves; this repeats it, after the repository or the host was away, and publishes on the
    host first where that had failed. When the checkout has moved, run it inside at its new place.
    """
    home = Home()
    view, notice = fetch_task(home, task, checkout=str(Path.cwd()))
    if notice is not None:
        click.echo(f"shunter: {notice}", err=True)
    refs = import_kept_work(home, task) if kept else []
    if as_json:
        emit({**view_record(view), "kept_refs": refs})
        return
    if view.ref:
        say(f"{view.ref.removeprefix('refs/remotes/')}  {view.task.fetched_oid}")
    elif not refs:
        say(f"{view.task.id}  made no commits, there is nothing to fetch")
    for ref in refs:
        say(ref.removeprefix("refs/remotes/"))
    if kept and not refs:
        say(f"{view.task.id}  nothing was kept beside the result")
