"""Measuring on a machine that others use too: both sides by turns, and everything that was started is ended."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

LIMIT_S = 120


def interleaved(runs: int, *sides: Callable[[], float]) -> list[list[float]]:
    """Each side's values, taken by turns after one run that does not count, so that a slow minute hits all alike."""
    for side in sides:
        side()
    found: list[list[float]] = [[] for _ in sides]
    for _ in range(runs):
        for values, side in zip(found, sides, strict=True):
            values.append(side())
    return found


def command_ms(argv: Sequence[str], **options: object) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S, **options)  # type: ignore[call-overload]
        return (time.perf_counter() - began) * 1000

    return run


def machine_facts() -> list[str]:
    """What a reader needs to compare these figures with others."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return [
        f"{os.cpu_count()} cores ({models[0] if models else platform.machine()}), {memory_gib:.0f} GiB",
        f"Linux {platform.release()}, load {os.getloadavg()[0]:.1f} when the run began",
        f"Python {platform.python_version()}, {git.stdout.strip()}",
    ]


def wait_until(check: Callable[[], object], *, limit_s: float = LIMIT_S, every_s: float = 0.005) -> None:
    give_up = time.monotonic() + limit_s
    while not check():
        if time.monotonic() > give_up:
            sys.exit(f"bench: did not happen within {limit_s:.0f} s: {check}")
        time.sleep(every_s)


def memory_mib(pid: int, field: str) -> float:
    """`Rss` or `Pss` of a process."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field + ":")) / 1024
