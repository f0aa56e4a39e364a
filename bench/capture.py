"""The working tree as it is, as `submit --wip` takes it: many changed files, and many unchanged ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from itertools import count

from shunter.git.capture import capture_base
from shunter.git.repository import open_repository
from shunter.git.transfer import open_transfer

from .measure import LIMIT_S, command_ms, interleaved
from .table import Row, Table
from .world import World

CHANGED, UNCHANGED = 1000, 50_000
RUNS = 10


def run() -> list[Table]:
    rows = [changed_files(), unchanged_files()]
    return [Table("Capture of uncommitted work", "git by hand", rows)]


def changed_files() -> Row:
    with World(files=CHANGED, commits=1) as world:
        numbers = count()

        def change() -> None:
            number = next(numbers)
            for file in range(CHANGED):
                with open(world.repo / "src" / str(file % 20) / f"{file}.txt", "a") as text:
                    text.write(f"change {number}\n")

        def ours() -> float:
            change()
            return capture_ms(world)

        def theirs() -> float:
            change()
            return by_hand_ms(world)

        return Row(f"{CHANGED:,} changed files", *interleaved(RUNS, ours, theirs), at_most=1000)


def unchanged_files() -> Row:
    with World(files=UNCHANGED, commits=1, file_bytes=200) as world:
        status = command_ms(["git", "-C", str(world.repo), "status", "--porcelain"], env=world.env)
        ours, theirs = interleaved(RUNS, lambda: capture_ms(world), status)
        return Row(f"{UNCHANGED:,} unchanged files, against `git status`", ours, theirs, times=1.5)


def capture_ms(world: World) -> float:
    began = time.perf_counter()
    repo = open_repository(str(world.repo))
    transfer = open_transfer(str(world.state / "transfer"), repo)
    capture_base(repo, transfer, wip=True)
    return (time.perf_counter() - began) * 1000


def by_hand_ms(world: World) -> float:
    """A copy of the index, everything added to it, its tree, a commit."""
    began = time.perf_counter()
    index = world.root / "index"
    shutil.copy2(world.repo / ".git" / "index", index)
    env = {**world.env, "GIT_INDEX_FILE": str(index)}

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=world.repo, env=env, check=True, stdout=-1, timeout=LIMIT_S)
        return os.fsdecode(done.stdout).strip()

    git("add", "-A")
    git("commit-tree", "-p", "HEAD", "-m", "work", git("write-tree"))
    return (time.perf_counter() - began) * 1000
