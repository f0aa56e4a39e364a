"""`shunter diff`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ...service.diff import read_diff
from ...service.home import Home
from ..output import task_argument
from ..text import coloured, visible


@click.command("diff")
@task_argument()
@click.option("--stat", is_flag=True, help="Only which files, and how many lines.")
def command(task: str, stat: bool) -> None:
    """Show the changes of a task, from its base to its result.

    Piped, the output is what git prints and `git apply` takes; on a terminal control characters are made visible.
    """
    data = read_diff(Home(), task, stat=stat, checkout=str(Path.cwd()))
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(data)
        return
    for line in data.decode("utf-8", "surrogateescape").split("\n")[:-1]:
        colour = {"+": "green", "-": "red", "@": "blue"}.get(line[:1]) if not stat else None
        sys.stdout.write(coloured(visible(line), colour) + "\n")
