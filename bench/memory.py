"""What stays in memory: the dispatcher, and one supervisor for each agent that runs."""

from __future__ import annotations

import time

from .fill import fill_store
from .measure import memory_mib, wait_until
from .table import Row, Table
from .world import World, kill

WAITING = 1000
SAMPLES = 10


def run() -> list[Table]:
    with World(slots=1) as world:
        mark = world.root / "started"
        world.shunter("submit", "-a", f"exec:sh -c 'touch {mark}; exec sleep 600'", "sleep")
        wait_until(mark.exists)
        dispatcher = world.dispatcher_pid()
        wait_until(world.supervisor_pids)
        supervisor = world.supervisor_pids()[0]
        idle = sampled(dispatcher, "Rss")
        fill_store(world, waiting=WAITING)
        world.shunter("reconcile")  # wakes it, so that it has looked at every row
        full = sampled(dispatcher, "Rss")
        serves = world.pids("\0serve\0")
        session = sampled(serves[0], "Rss")
        shared = sampled(supervisor, "Pss")
        for pid in (dispatcher, *serves):
            kill(pid)
        wait_until(lambda: not world.pids("\0serve\0"))
        rows = [
            Row("dispatcher, one turn runs (RSS)", idle, unit="MiB", at_most=80),
            Row(f"dispatcher, {WAITING:,} open tasks wait (RSS)", full, unit="MiB", at_most=80),
            Row("helper's session (RSS)", session, unit="MiB"),
            Row("supervisor of a running agent (PSS)", shared, unit="MiB", at_most=5),
            Row("the same, once the session is gone", sampled(supervisor, "Pss"), unit="MiB", at_most=5),
        ]
    return [Table("Memory", "", rows)]


def sampled(pid: int, field: str) -> list[float]:
    """Over a few seconds, in which the dispatcher looks at its queue again by itself."""
    values = []
    for _ in range(SAMPLES):
        time.sleep(0.6)
        values.append(memory_mib(pid, field))
    return values
