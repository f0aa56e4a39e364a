"""How long a command takes to answer, against an interpreter that does nothing."""

from __future__ import annotations

import sys

from . import fill
from .measure import command_ms, interleaved
from .table import Row, Table
from .world import SHUNTER, World

TASKS = 10_000
RUNS = 25


def run() -> list[Table]:
    with World(files=1, commits=1) as world:
        fill.fill_store(world, settled=TASKS)
        python = [sys.executable, "-I", "-c", "pass"]
        sides = [command_ms(argv, env=world.env) for argv in (python, [SHUNTER, "--version"], [SHUNTER, "list"])]
        plain, version, listed = interleaved(RUNS, *sides)
    rows = [
        Row("`shunter --version`", version, plain, times=5),
        Row(f"`shunter list`, {TASKS:,} tasks in the store", listed, plain, times=9),
    ]
    return [Table("Start of a command", "`python -I -c pass`", rows)]
