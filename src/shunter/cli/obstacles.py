"""What keeps a task from going on is told on standard error to whoever waits, once until it changes."""

from __future__ import annotations

from collections.abc import Callable, Collection

import click

from ..model.states import Step
from ..service.home import Home
from ..service.view import TaskView
from .text import visible


def obstacle_teller(home: Home, *, told: Collection[str] = ()) -> Callable[[TaskView], None]:
    """`told`: words that the command has said already."""
    from ..service.obstacles import find_obstacles  # with all that knows hosts

    known: dict[str, set[str]] = {}

    def tell(view: TaskView) -> None:
        if view.turn is None or view.turn.step in (Step.CLAIMED, Step.LEASED):  # a try is going on
            return
        found = find_obstacles(home, view)
        for what in found.keys() - known.get(view.task.id, set()):
            if found[what] not in told:
                click.echo(f"shunter: {visible(found[what])}", err=True)
        known[view.task.id] = set(found)

    return tell
