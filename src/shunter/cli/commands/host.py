"""`shunter host`."""

from __future__ import annotations

import click

from ...service.check import check_host
from ...service.home import Home
from ..output import emit, json_option, say
from ..text import coloured, visible

MARKS = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("note", "dim")}


@click.group("host")
def command() -> None:
    """Look whether a host can do its work."""


@command.command("check")
@click.argument("name", default="local")
@json_option
@click.pass_context
def check(ctx: click.Context, name: str, as_json: bool) -> None:
    """Look whether a host can do its work: helper, versions, room, programs of agents.

    Changes no task. The first time it makes the host's directory and puts the helper there. Exit status 69 when
    something is missing that every turn needs.
    """
    findings = check_host(Home(), name)
    if as_json:
        emit(findings)
    else:
        for finding in findings:
            word, colour = MARKS[finding.ok]
            say(f"{coloured(f'{word:<7}', colour)} {finding.what:<18} {visible(finding.found)}")
            if finding.ok is False and finding.remedy:
                say(f"        -> {finding.remedy}")
    ctx.exit(69 if any(finding.ok is False for finding in findings) else 0)
