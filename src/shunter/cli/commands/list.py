"""`shunter list`."""

from __future__ import annotations

import time

import click

from ...agents.contract import LIMIT
from ...service.home import Home
from ...service.leading import unled
from ...service.view import TaskView, list_views
from ...wire.errors import ShunterError
from ..output import emit, json_option, say, view_record
from ..text import age, clock, phrase_colour, table, visible
from .result import repeat_words

MOST = 100_000


@click.command("list")
@click.option("-a", "--all", "everything", is_flag=True, help="Closed tasks too.")
@click.option("-n", "--limit", type=click.IntRange(1, MOST), help="At most so many; else 50, and with --json all.")
@json_option
def command(everything: bool, limit: int | None, as_json: bool) -> None:
    """Show tasks, newest first: what was last recorded, no host is asked."""
    home = Home()
    limit = limit or (MOST if as_json else 50)
    try:
        views = list_views(home.reading, everything=everything, limit=limit + 1)
    except ShunterError as exc:
        if exc.code != "TASK_UNKNOWN":
            raise
        views = []
    more, views = len(views) > limit, views[:limit]
    stale = unled(home)
    if as_json:
        emit([view_record(view) for view in views])
        return
    if not views:
        say("No tasks. `shunter submit --help` shows how to hand one over.")
        return
    now = time.time()
    rows = [
        (
            view.task.id,
            state_words(view),
            view.task.host or view.task.pinned_host or "-",
            visible(view.task.agent)[:24],
            age(now - view.task.created_at),
            visible(view.task.title),
        )
        for view in views
    ]
    colours = [phrase_colour(view.phrase) for view in views]
    say(table(("TASK", "STATE", "HOST", "AGENT", "AGE", "TITLE"), rows, colours))
    if stale:
        say(stale)
    if any(view.phrase == "waiting" for view in views):
        from ...service.stops import explain_stops

        for words in explain_stops(home):
            say(visible(words))
    if more:
        say(f"… more; `shunter list -n {limit * 2}` shows them")


def state_words(view: TaskView) -> str:
    """The phrase, and until when: for a limit whose end is known, and for a repeat that is due later."""
    if view.again_at is not None:
        return f"{view.phrase}, {repeat_words(view)}"
    end = view.turn.outcome if view.turn is not None else None
    if end is None or end.limit is None or end.limit.resets_at is None or view.phrase != LIMIT:
        return view.phrase
    word = "until" if end.limit.resets_at > time.time() else "was until"
    return f"{view.phrase} {word} {clock(end.limit.resets_at)}"
