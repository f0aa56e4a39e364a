"""`shunter hosts`."""

from __future__ import annotations

import sys
import time

import click

from ...service.home import Home
from ...service.pool import HostStatus, observe_pool
from ..output import emit, json_option, say
from ..text import age, table, visible

COLOURS = {
    "ready": "green",
    "full": "blue",
    "drained": "yellow",
    "disabled": "dim",
    "duplicate": "yellow",
    "outdated": "yellow",
    "unknown": "red",
    "untrusted": "red",
    "unfit": "red",
}
EVERY_S = 2.0


@click.command("hosts")
@click.option("--refresh", is_flag=True, help="Ask now, also hosts that did not answer a moment ago.")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C; with --json one line each time.")
@json_option
def command(refresh: bool, watch: bool, as_json: bool) -> None:
    """Show the pool: each host's state and room.

    ready and full take turns; drained and disabled take none because somebody said so; duplicate is another one's
    machine and data root; unknown could not be asked, with what was last known; untrusted shows another host key than
    the one known here; outdated lacks this version's helper; unfit cannot run turns. Facts are at most two seconds
    old, unless their age is shown.
    """
    while True:
        found = observe_pool(Home(), refresh=refresh)
        if as_json:
            emit(tuple(found))
        else:
            if watch and sys.stdout.isatty():
                say("\x1b[H\x1b[2J\x1b[3J" + time.strftime("%H:%M:%S"))
            say(render(found))
            sys.stdout.flush()
        if not watch:
            return
        time.sleep(EVERY_S)


def render(found: list[HostStatus]) -> str:
    header = ("HOST", "STATE", "SLOTS", "MEMORY", "LOAD", "DISK", "FACTS", "AGENTS")
    rows = [_row(host) for host in found]
    lines = [table(header, rows, [COLOURS[host.state] for host in found])]
    for host in found:
        if host.reason:
            lines.append(f"{host.name}: {visible(host.reason)}")
        lines += [visible(words) for words in host.stopped]
        if host.hint:
            lines.append(f"  -> {visible(host.hint)}")
    return "\n".join(lines)


def _row(host: HostStatus) -> tuple[str, ...]:
    facts = host.facts
    memory = load = disk = "-"
    if facts is not None:
        if facts.memory_available_mb is not None:
            total = f" of {_gb(facts.memory_total_mb)}" if facts.memory_total_mb is not None else ""
            memory = f"{_gb(facts.memory_available_mb)}{total} GB free"
        if facts.load_1m is not None:
            load = f"{facts.load_1m:.1f}" + (f" on {facts.cpus}" if facts.cpus else "")
        if facts.disk_free_mb is not None:
            disk = f"{_gb(facts.disk_free_mb)} GB free"
    agents = "-" if host.agents is None else ", ".join(host.agents) or "none"
    known = "never" if host.facts_age_s is None else age(host.facts_age_s)
    return (host.name, host.state, f"{host.slots_used}/{host.slots}", memory, load, disk, known, agents)


def _gb(mb: int) -> str:
    return f"{mb / 1024:.1f}" if mb < 10240 else f"{mb // 1024}"
