"""Finding and claiming the next row, with many that wait; against one bare statement of SQLite."""

from __future__ import annotations

import sqlite3
import time

from shunter.policy.claim import plan_claims
from shunter.policy.placement import HostView
from shunter.wire.ids import new_attempt_id

from .fill import fill_store, open_world_store
from .measure import interleaved
from .table import Row, Table
from .world import World

ROWS, HOSTS, SLOTS = 10_000, 100, 3
RUNS = 50
BARE = "UPDATE queue SET owner = 'x' WHERE seq = (SELECT seq FROM queue WHERE owner IS NULL ORDER BY seq LIMIT 1)"


def run() -> list[Table]:
    rows = [one_free_slot(shapes) for shapes in (1, 20)]
    return [Table(f"Claim with {ROWS:,} waiting rows and {HOSTS} hosts", "bare UPDATE", rows)]


def one_free_slot(shapes: int) -> Row:
    """The usual case: a turn is over, and its slot goes to the first row that fits."""
    with World(files=1, commits=1) as world:
        fill_store(world, waiting=ROWS, shapes=shapes)
        store = open_world_store(world)
        used = [SLOTS] * (HOSTS - 1) + [SLOTS - 1]
        hosts = [HostView(f"host{n:03}", SLOTS, slots_used=used[n], memory_mb=None) for n in range(HOSTS)]
        bare = sqlite3.connect(world.root / "bare.db", isolation_level=None)
        bare.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE queue (seq INTEGER PRIMARY KEY, owner)"
        )
        bare.executemany("INSERT INTO queue VALUES (?, NULL)", ((n,) for n in range(ROWS)))

        def ours() -> float:
            began = time.perf_counter()
            free = sum(host.slots - host.slots_used for host in hosts)
            (claim,) = plan_claims(store.waiting_rows(now=time.time(), per_shape=free), hosts, now=time.time()).claims
            attempt = new_attempt_id(claim.turn_id)
            store.claim_row(claim.turn_id, host=claim.host, attempt_id=attempt, owner="bench", now=time.time())
            return (time.perf_counter() - began) * 1000

        def theirs() -> float:
            began = time.perf_counter()
            bare.execute(BARE)
            return (time.perf_counter() - began) * 1000

        found = interleaved(RUNS, ours, theirs)
        bare.close()
        store.close()
    return Row(f"{shapes} kind{'s' * (shapes > 1)} of row", *found, at_most=10)
