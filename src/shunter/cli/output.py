"""What every command prints with: JSON of the same records that the text is made from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

from ..service.view import TaskView
from ..wire.codec import dumps, encode

json_option = click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")


def emit(record: Any) -> None:
    """One line of JSON; in follow modes each event is one (NDJSON)."""
    sys.stdout.write(dumps(record) + "\n")
    sys.stdout.flush()


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")


def view_record(view: TaskView) -> dict[str, Any]:
    """`{task…, phrase, ref, push, again_at, turn}`: the record of list, status, wait and result."""
    more = {"phrase": view.phrase, "ref": view.ref, "push": encode(view.push), "again_at": view.again_at}
    return {**encode(view.task), **more, "turn": encode(view.turn)}


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Ids of tasks for the shell's completion; silence when there is no store."""
    from click.shell_completion import CompletionItem

    from ..service.home import Home
    from ..service.view import list_views

    try:
        views = list_views(Home().reading, everything=True, limit=200)
    except Exception:
        return []
    return [CompletionItem(view.task.id, help=view.task.title) for view in views if view.task.id.startswith(incomplete)]


def task_argument(**options: Any) -> Callable[[Any], Any]:
    return click.argument("task", shell_complete=complete_task, **options)
