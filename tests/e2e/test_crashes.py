"""kill -9 of everything in turn: one launch, the same end, nothing left over (P7, P13, T15)."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_world import World, eventually, kill

ONCE = 'echo launched >> "{marks}/launches"; cat >> work.txt; git add work.txt; git commit -qm work'


def once(world: World) -> str:
    return ONCE.format(marks=world.marks)


@pytest.mark.timeout(600)  # twenty homes, one after the other
def test_at_most_one_launch_whatever_step_the_dispatcher_dies_at(tmp_path):
    died_at: list[str] = []
    whole = 0
    for number in itertools.count(1):
        root = tmp_path / str(number)
        root.mkdir()
        world = World(root)
        try:
            name = die_at_boundary(world, number)
            ended_with_one_launch(world)
        finally:
            world.close()
        if name is not None:
            died_at.append(name)
        # How often a running turn is looked at differs, so one whole run alone does not prove that there is no more.
        whole = whole + 1 if name is None else 0
        if whole == 2:
            break
    assert {"before claimed", "recording leased", "recording accepted", "recording ended"} <= set(died_at)


def die_at_boundary(world: World, number: int) -> str | None:
    mark = world.root / "died-at"
    script = Path(__file__).parent / "crashing_dispatcher.py"
    dispatcher = subprocess.Popen(
        [sys.executable, str(script), str(number), str(mark)],
        env=world.env,
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert dispatcher.stdout is not None
        assert dispatcher.stdout.readline() == b"starting\n"
        assert dispatcher.stdout.readline() == b"ready\n"
        task = world.submit(once(world))
        eventually(lambda: mark.exists() or world.json("status", task)["phrase"] == "done")
    finally:
        if mark.exists():
            dispatcher.wait(timeout=30)
        else:
            dispatcher.kill()
            dispatcher.wait()
    return mark.read_text() if mark.exists() else None


def ended_with_one_launch(world: World) -> None:
    (task,) = [each["id"] for each in world.json("list", "--all")]
    (status,) = world.wait(task, status=0)
    assert (status["phrase"], status["state"]) == ("done", "open"), status
    assert world.launches() == 1
    assert world.git("log", "--format=%s", "-1", f"shunter/local/task/{task}") == "work"
    world.assert_nothing_left_over()


def test_a_turn_goes_on_when_the_helper_is_killed(world):
    task = world.submit(f'{once(world)}; while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done; echo end')
    eventually(world.launches)
    (helper,) = world.helper_pids()
    kill(helper)
    eventually(lambda: world.helper_pids() not in ([], [helper]))
    (world.marks / "go").touch()
    (status,) = world.wait(task, status=0)
    assert (status["phrase"], world.launches()) == ("done", 1)
    world.assert_nothing_left_over()


def test_a_killed_supervisor_makes_the_turn_lost_and_keeps_the_work(world):
    task = world.submit(f'echo half > half.txt; echo launched >> "{world.marks}/launches"; sleep 300')
    eventually(world.launches)
    (supervisor,) = world.supervisor_pids()
    kill(supervisor)
    (status,) = world.wait(task, status=70)
    assert (status["phrase"], status["state"]) == ("lost", "open")
    assert "supervisor_died" in status["turn"]["outcome"]["evidence"]
    assert world.tagged_processes() == []
    assert world.git("show", f"shunter/local/task/{task}:half.txt") == "half"
    assert (world.data / "tasks" / task / "workspace" / "half.txt").exists()
    world.assert_nothing_left_over()


def test_everything_killed_at_once_is_sorted_out_by_the_next_command(world):
    task = world.submit(f"{once(world)}; sleep 300")
    eventually(world.launches)
    for pid in [*world.dispatcher_pids(), *world.helper_pids(), *world.supervisor_pids()]:
        kill(pid)
    (status,) = world.wait(task, status=70)
    assert (status["phrase"], world.launches()) == ("lost", 1)
    world.assert_nothing_left_over()
