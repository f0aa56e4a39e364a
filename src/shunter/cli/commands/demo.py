"""`shunter demo`."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from ...policy.outcome import exit_status_of
from ...service.demo import Demo, start_demo
from ...service.home import Home
from ...service.view import TaskView, load_view
from ...service.waiting import POLL_S, is_over
from ..output import say
from ..text import duration, visible
from .result import render_result

if TYPE_CHECKING:
    from rich.table import Table

LIMIT_S = 120


@click.command("demo")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Three tasks side by side in a throw-away project.

    Uses a directory of its own for everything, so neither your configuration nor your tasks are touched.
    """
    say("Three tasks for the built-in `exec` agent, each in a workspace of its own, on a host with three slots.")
    demo = start_demo()
    home = Home()
    views = watch(home, demo)
    say()
    for view in views:
        say(render_result(view, home))
    say()
    say("The branches in the project:")
    for view in views:
        say(f"  git -C {demo.project} log {(view.ref or '?').removeprefix('refs/remotes/')}")
    say()
    tell_agents()
    wait_dispatcher_gone(home)
    say(f"Left behind, and nothing else: {demo.root}  (rm -rf {demo.root})")
    failed = [view for view in views if view.turn is None or exit_status_of(view.turn) != 0]
    ctx.exit(1 if failed else 0)


def watch(home: Home, demo: Demo) -> list[TaskView]:
    """A table that updates in place on a terminal, plain lines otherwise."""
    if sys.stdout.isatty():
        return watch_live(home, demo)
    seen: dict[str, str] = {}
    started = time.monotonic()
    while True:
        views = [load_view(home.store, task_id) for task_id in demo.task_ids]
        for view in views:
            if seen.get(view.task.id) != view.phrase:
                seen[view.task.id] = view.phrase
                say(f"{time.monotonic() - started:5.1f} s  {view.task.id}  {view.phrase:<12} {view.task.title}")
                sys.stdout.flush()
        if all(is_over(view) for view in views) or time.monotonic() - started > LIMIT_S:
            return views
        time.sleep(POLL_S)


def watch_live(home: Home, demo: Demo) -> list[TaskView]:
    from rich.live import Live

    started = time.monotonic()
    with Live(refresh_per_second=10) as live:
        while True:
            views = [load_view(home.store, task_id) for task_id in demo.task_ids]
            live.update(progress_table(views))
            if all(is_over(view) for view in views) or time.monotonic() - started > LIMIT_S:
                return views
            time.sleep(POLL_S)


def wait_dispatcher_gone(home: Home) -> None:
    """An idle dispatcher ends after a few seconds; then no process of ours is left."""
    give_up = time.monotonic() + 15
    while home.store.read_leader().owner is not None and time.monotonic() < give_up:
        time.sleep(POLL_S)


def progress_table(views: list[TaskView]) -> Table:
    from rich.table import Table

    table = Table("task", "state", "host", "time", "title")
    for view in views:
        turn = view.turn
        taken = (turn.settled_at or time.time()) - turn.created_at if turn else None
        table.add_row(view.task.id, view.phrase, view.task.host or "", duration(taken), visible(view.task.title))
    return table


def tell_agents() -> None:
    """The lines that run the same with a real agent, when one is installed."""
    found = [name for name in ("codex", "claude") if shutil.which(name)]
    if found:
        say("The same with a real agent, in a repository of yours:")
    else:
        say("With Codex or Claude Code installed and signed in, in a repository of yours:")
    for name in found or ("codex", "claude"):
        say(f'  shunter submit --agent {name} --wait "describe what this project does in NOTES.md"')
    say()
