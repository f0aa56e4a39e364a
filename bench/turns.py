"""Many trivial turns through three slots, against a script with the same git steps under xargs; and where time goes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from .measure import LIMIT_S, interleaved
from .submit import BY_HAND
from .table import Row, Table, percentile, shown
from .world import World

TURNS, SLOTS, RUNS = 200, 3, 2
AGENT = "echo more >> src/0/0.txt"
STAGES = ("lease", "ship", "accept", "start", "agent", "publish", "fetch", "settle")


def run() -> list[Table]:
    with World(slots=SLOTS) as world:
        told: list[dict[str, Any]] = []

        def by_shunter() -> float:
            argv = [sys.executable, "-m", "bench.many", str(world.repo), str(TURNS), f"exec:sh -c '{AGENT}'"]
            root = Path(__file__).parent.parent
            done = subprocess.run(
                argv, cwd=root, env=world.env, check=True, stdout=subprocess.PIPE, timeout=5 * LIMIT_S
            )
            told.append(json.loads(done.stdout))
            return told[-1]["all_s"]

        def by_hand() -> float:
            shutil.rmtree(world.root / "hand", ignore_errors=True)
            (world.root / "hand").mkdir()
            mirror = world.root / "hand" / "mirror.git"
            subprocess.run(["git", "init", "-q", "--bare", str(mirror)], env=world.env, check=True, timeout=LIMIT_S)
            work = str(world.root / "hand" / "{}")
            argv = ["xargs", "-P", str(SLOTS), "-I", "{}", BY_HAND, str(world.repo), str(mirror), work, "{}"]
            numbers = "".join(f"{number}\n" for number in range(TURNS)).encode()
            env = {**world.env, "BRING_BACK": "1"}
            began = time.time()
            subprocess.run([*argv, "sh", "-c", AGENT], env=env, input=numbers, check=True, timeout=5 * LIMIT_S)
            return time.time() - began

        ours, theirs = interleaved(RUNS, by_shunter, by_hand)
        rows = [
            Row(f"{TURNS} turns, {SLOTS} at one time", ours, theirs, unit="s", times=1),
            Row("of these: until the last was stored", [each["stored_s"] for each in told[1:]], unit="s"),
        ]
    return [Table("Many trivial turns", f"script, xargs -P{SLOTS}", rows, stage_notes(told[1:]))]


def stage_notes(told: list[dict[str, Any]]) -> list[str]:
    """Each stage's share of a turn from its claim on; the wait for a slot is no work of anybody's."""
    turns = [turn for each in told for turn in each["turns"]]
    times = {stage: [max(0.0, turn.get(stage) or 0.0) * 1000 for turn in turns] for stage in STAGES}
    whole = sum(map(sum, times.values()))
    return [
        f"{stage}: {100 * sum(values) / whole:.0f} % of a turn, median {shown(median(values))} ms,"
        f" p95 {shown(percentile(values, 0.95))} ms"
        for stage, values in times.items()
    ]
