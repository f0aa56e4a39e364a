"""`shunter logs`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import click

from ...agents import exec as exec_agent
from ...agents.contract import Event
from ...agents.table import event_reader, load, parse_name
from ...model.records import Turn
from ...service.home import Home
from ...service.leading import unled
from ...service.logs import Begun, Piece, choose_turn, find_repeat, lines_of, read_log
from ...store.briefs import brief_id, read_brief
from ...wire.errors import ShunterError
from ..durations import AGO
from ..output import emit, json_option, task_argument
from ..text import NOT_KEPT, clock, coloured, visible

MARKS = {
    "command": "$",
    "file": "~",
    "tool": "*",
    "error": "!",
    "usage": "#",
    "thinking": "…",
    "notice": "i",
    "prompt": "?",
}
COLOURS = {
    "command": "bold",
    "error": "red",
    "thinking": "dim",
    "usage": "dim",
    "tool": "blue",
    "notice": "dim",
    "prompt": "yellow",
}


@click.command("logs")
@task_argument()
@click.option(
    "-f", "--follow", is_flag=True, help="Go on until the turn is over, and its repeats. Ctrl-C ends only the looking."
)
@click.option("--raw", is_flag=True, help="The agent's own bytes.")
@click.option("--stderr", is_flag=True, help="Its standard error instead of its standard output.")
@click.option("--since", "ago_s", type=AGO, help="Only what came in the last 10m, or from 14:05 on.")
@click.option("--turn", "number", type=click.IntRange(1), help="Another turn than the last.")
@json_option
def command(
    task: str, follow: bool, raw: bool, stderr: bool, ago_s: float | None, number: int | None, as_json: bool
) -> None:
    """Show what the agent did, live with -f.

    Each agent's events are shown in one form: $ command, ~ file, * tool, ! error, and plain text for what it said.
    With --json one event a line. Control characters are made visible except with --raw. A closed task has no logs.
    """
    if raw and as_json:
        raise ShunterError("USAGE", "--raw is the agent's own bytes, --json is events", hint="give one of them")
    home = Home()
    turn = choose_turn(home, task, number, follow=follow)
    stream = "stderr" if stderr else "stdout"
    while True:
        pieces = read_log(home, turn, stream=stream, follow=follow, ago_s=ago_s)
        if raw:
            for piece in pieces:
                sys.stdout.buffer.write(piece.data)
                sys.stdout.buffer.flush()
        else:
            _show_events(pieces, _reader(home, turn, plain=stderr), as_json)
        repeat = find_repeat(home, turn) if follow and number is None else None
        if repeat is None:
            stale = unled(home) if follow else None
            if stale:
                click.echo(f"shunter: {stale}", err=True)
            return
        turn, due_at = repeat
        if not raw:
            when = f" at {clock(due_at)}" if due_at > time.time() else ""
            _show(Event("notice", f"repeat {turn.repeat_number} of {turn.repeat_limit} follows{when}"), as_json)
            sys.stdout.flush()


def _show_events(pieces: Iterator[Piece], read_event: Callable[[bytes], list[Event]], as_json: bool) -> None:
    is_plain = read_event is exec_agent.read_event  # each line is a message, so a part of one can be shown
    for line in lines_of(pieces, begun=is_plain and not as_json):
        if isinstance(line, Begun):
            sys.stdout.write(visible(line.decode("utf-8", "replace")))
            sys.stdout.flush()
            continue
        if isinstance(line, Piece):
            _show(Event("notice", f"{line.gap_bytes} bytes are not kept: {NOT_KEPT}"), as_json)
            continue
        for event in read_event(line):
            _show(event, as_json)
        sys.stdout.flush()


def _reader(home: Home, turn: Turn, *, plain: bool) -> Callable[[bytes], list[Event]]:
    if plain:
        return exec_agent.read_event
    try:
        brief = read_brief(home.places.prompts_dir, brief_id(turn))
    except ShunterError:  # closed: the brief is gone, the name is left
        name = home.reading.load_task(turn.task_id).agent
        entry = home.config.agents.get(name)
        return load(parse_name(entry.adapter if entry else name).adapter).read_event
    return event_reader(brief.adapter, brief.fields)


def _show(event: Event, as_json: bool) -> None:
    if as_json:
        emit({"kind": event.kind, "text": event.text, "exit_code": event.exit_code, "path": event.path})
        return
    mark = MARKS.get(event.kind)
    shown = visible(event.text, keep="\n\t").rstrip("\n")
    if event.exit_code:
        shown += f"\n  exit status {event.exit_code}"
    if mark:
        shown = "\n".join(f"{mark if n == 0 else ' '} {line}" for n, line in enumerate(shown.split("\n")))
    sys.stdout.write(coloured(shown, COLOURS.get(event.kind)) + "\n")
