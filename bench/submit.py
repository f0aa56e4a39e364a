"""From `shunter submit` to the first act of the agent, on an idle local host that has the base already."""

from __future__ import annotations

import subprocess
import time
from itertools import count
from pathlib import Path

from .measure import LIMIT_S, interleaved, wait_until
from .table import Row, Table
from .world import World

WARM_RUNS, COLD_RUNS = 20, 6
# The agent's first act; no program is started for it. Linked into place, so that a stamp is there whole or not at all.
STAMP = 'echo "$EPOCHREALTIME" > "$0.new" && mv "$0.new" "$0"'
BY_HAND = str(Path(__file__).parent / "by_hand.sh")


def run() -> list[Table]:
    with World() as world:
        numbers = count()
        mirror = world.root / "mirror.git"
        subprocess.run(["git", "init", "-q", "--bare", str(mirror)], env=world.env, check=True, timeout=LIMIT_S)
        enqueued: list[float] = []

        def by_shunter() -> float:
            stamp = world.root / f"stamp-{next(numbers)}"
            began = time.time()
            task = world.shunter("submit", "-a", f"exec:bash -c '{STAMP}' {stamp}", "do it")
            at = stamp_at(stamp)
            world.wait_settled(task)
            enqueued.append((at - world.json("status", task)["created_at"]) * 1000)
            return (at - began) * 1000

        def by_hand() -> float:
            name = f"hand-{next(numbers)}"
            stamp = world.root / f"stamp-{name}"
            places = [str(each) for each in (world.repo, mirror, world.root / name)]
            agent = ["bash", "-c", STAMP, str(stamp)]
            began = time.time()
            subprocess.run([BY_HAND, *places, name, *agent], env=world.env, check=True, timeout=LIMIT_S)
            return (stamp_at(stamp) - began) * 1000

        def cold() -> float:
            world.wait_no_dispatcher()
            return by_shunter()

        warm, script = interleaved(WARM_RUNS, by_shunter, by_hand)
        from_row = enqueued[1:]
        enqueued.clear()
        unled, script_again = interleaved(COLD_RUNS, cold, by_hand)
        rows = [
            Row("warm: dispatcher leads, session open", warm, script, times=1.3),
            Row("warm, from the stored row on", from_row, script, times=1.3),
            Row("cold: dispatcher and session are started", unled, script_again),
            Row("cold, from the stored row on", enqueued[1:], script_again),
        ]
    return [Table("From submit to the agent's first act", "git by hand", rows)]


def stamp_at(stamp: Path) -> float:
    wait_until(stamp.exists)
    return float(stamp.read_text())
