"""`shunter reconcile`."""

from __future__ import annotations

import click

from ...service.actions import reconcile
from ...service.home import Home
from ..output import emit, json_option, say
from ..text import visible


@click.command("reconcile")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Ask about everything under way and repair what was left.

    Starts a dispatcher if none leads, asks each host about each turn by its id, and fetches results that could not be
    brought home before. Safe at any time.
    """
    repairs = reconcile(Home())
    if as_json:
        emit(repairs)
    else:
        for repair in repairs:
            say(f"{repair.task_id}  {repair.what}" + (f": {visible(repair.error)}" if repair.error else ""))
        if not repairs:
            say("Nothing to repair.")
    ctx.exit(70 if any(repair.error for repair in repairs) else 0)
