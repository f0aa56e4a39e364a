"""Whatever is killed at whatever moment: a second call ends in the same state as one undisturbed call."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shunter.wire.errors import ShunterError

from .world import IDENTITY, SRC, TASK, World, git, write

ROUNDS = 12


def kill_after_spawns(code: str, count: int) -> bool:
    """Run code in a process of its own group that is killed when git is about to start for the `count`-th time.

    Counting what is started hits every gap between two steps without any clock. True when it lived to the end.
    """
    prelude = (
        f"import sys, os, signal; sys.path.insert(0, {SRC!r})\n"
        "from shunter.host import gitrun\n"
        "real, left = gitrun._spawn, [COUNT]\n"
        "def spawn(*args, **options):\n"
        "    left[0] -= 1\n"
        "    if left[0] < 0: os.killpg(0, signal.SIGKILL)\n"
        "    return real(*args, **options)\n"
        "gitrun._spawn = spawn\n"
    ).replace("COUNT", str(count))
    done = subprocess.run([sys.executable, "-c", prelude + code], start_new_session=True, capture_output=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode == 0


def kill_after_lines(code: str, lines: int) -> bool:
    """The same between two lines of our own code: killed at the `lines`-th line run in `shunter.host`."""
    prelude = (
        f"import sys, os, signal; sys.path.insert(0, {SRC!r})\n"
        "left = [COUNT]\n"
        "def trace(frame, event, arg):\n"
        "    if '/shunter/host/' not in frame.f_code.co_filename: return None\n"
        "    if event == 'line':\n"
        "        left[0] -= 1\n"
        "        if left[0] < 0: os.killpg(0, signal.SIGKILL)\n"
        "    return trace\n"
    ).replace("COUNT", str(lines))
    done = subprocess.run(
        [sys.executable, "-c", prelude + code.replace("#go", "sys.settrace(trace)")],
        start_new_session=True,
        capture_output=True,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode == 0


def making(world: World, base: str) -> str:
    return (
        "from shunter.host.workspace import ensure_workspace, Identity\n#go\n"
        f"ensure_workspace({str(world.workspace())!r}, {world.mirror!r}, task_id={TASK!r}, base_oid={base!r},"
        f" identity=Identity({IDENTITY.name!r}, {IDENTITY.email!r}))\n"
    )


def publishing(world: World, base: str) -> str:
    return (
        "from shunter.host.publish import publish_workspace, Identity\n#go\n"
        f"publish_workspace({str(world.workspace())!r}, {world.mirror!r}, task_id={TASK!r}, base_oid={base!r},"
        f" turn_base_oid={base!r}, message='left', identity=Identity('a', 'a@b'))\n"
    )


@pytest.mark.parametrize("how", [kill_after_spawns, kill_after_lines])
def test_a_killed_making_leaves_nothing_or_a_whole_workspace(world: World, user_repo: Path, how) -> None:  # type: ignore[no-untyped-def]
    _, _, base = world.ship(user_repo)
    survived = 0
    for count in moments(how, 150):
        survived += how(making(world, base), count)
        if world.workspace().exists():
            assert git(world.workspace(), "status", "--porcelain") == ""
        world.check_out(base)
        assert git(world.workspace(), "rev-parse", "HEAD") == base
        assert sorted(os.listdir(world.workspace().parent)) == [".workspace.lock", "workspace"]
        subprocess.run(["rm", "-rf", world.workspace()], check=True)
    assert survived < ROUNDS


@pytest.mark.parametrize("how", [kill_after_spawns, kill_after_lines])
def test_a_killed_publication_is_finished_by_the_next(world: World, user_repo: Path, how) -> None:  # type: ignore[no-untyped-def]
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    mirror = Path(world.mirror)
    turn_base = base
    survived = 0
    for number, count in enumerate(moments(how, 250)):
        write(world.workspace() / f"left{number}")
        survived += how(publishing(world, base), count)
        published = world.publish(base, turn_base)
        assert git(mirror, "rev-parse", f"refs/heads/task/{TASK}") == published.head_oid
        assert git(mirror, "show", f"{published.head_oid}:left{number}") == "x"
        assert git(world.workspace(), "rev-parse", "HEAD") == published.head_oid
        assert git(world.workspace(), "status", "--porcelain") == ""
        assert sorted(os.listdir(world.workspace().parent)) == [".workspace.lock", "workspace"]
        turn_base = published.head_oid
    git(mirror, "fsck", "--full")
    assert survived < ROUNDS


def moments(how, lines: int) -> list[int]:  # type: ignore[no-untyped-def]
    if how is kill_after_spawns:
        return list(range(ROUNDS))
    return sorted(random.Random(7).sample(range(lines), ROUNDS))


def test_a_workspace_that_lost_its_record_is_not_guessed_at(world: World, user_repo: Path) -> None:
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    (world.workspace() / ".git" / "shunter-workspace").unlink()
    with pytest.raises(ShunterError) as caught:
        world.check_out(base)
    assert caught.value.code == "WORKTREE_INCONSISTENT"
