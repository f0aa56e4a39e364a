"""Home: readers change nothing, one dispatcher leads, it ends by itself, two homes live side by side, completion."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess

import pytest
from e2e_world import SHUNTER, World, eventually


def contents(world: World) -> dict[str, bytes]:
    """Every file of home, without SQLite's own shared memory, which readers map."""
    return {
        str(path): path.read_bytes()
        for path in sorted(world.state.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def test_readers_change_nothing_and_start_nothing(world):
    task = world.submit("echo x > x.txt")
    world.wait(task, status=0)
    eventually(lambda: not world.dispatcher_pids())
    before = contents(world)
    for words in (
        ("list", "--all"),
        ("status", task, "--timing"),
        ("result", task),
        ("diff", task),
        ("diff", task, "--stat"),
        ("logs", task),
        ("config", "show"),
    ):
        world.run(*words)
        assert not world.dispatcher_pids(), words
    assert contents(world) == before


def test_commands_before_the_first_task_say_so(world):
    assert "No tasks" in world.out("list")
    assert world.json("list") == []
    assert b"TASK_UNKNOWN" in world.run("status", "abc", status=64).stderr
    assert not world.state.exists()


def test_the_dispatcher_ends_when_there_is_nothing_to_do_and_comes_back(world):
    world.wait(world.submit("echo x > x.txt"), status=0)
    eventually(lambda: not world.dispatcher_pids() and not world.helper_pids())
    assert world.store("SELECT owner_id FROM leader") == [(None,)]
    world.wait(world.submit("echo y > y.txt"), status=0)


def test_many_submits_at_once_start_one_dispatcher_and_run_once_each(world):
    script = f'echo x >> "{world.marks}/launches"; touch "made-$SHUNTER_TASK"'
    children = [world.start("submit", "-a", f"exec:sh -c '{script}'", f"task {number}") for number in range(8)]
    ids = [child.communicate(timeout=60)[0].decode().strip() for child in children]
    assert len(set(ids)) == 8
    eventually(lambda: len(world.dispatcher_pids()) <= 1)  # one that found a leader says so and then ends
    records = world.wait(*ids, status=0)
    assert {record["phrase"] for record in records} == {"done"}
    assert world.launches() == 8
    starts = {record["turn"]["started_at"] for record in records}
    assert len(starts) == 8
    world.assert_nothing_left_over()


def test_a_program_gets_the_whole_list(world):
    task = world.submit("touch x")
    world.wait(task, status=0)
    names = ", ".join(row[1] for row in world.store("PRAGMA table_info(tasks)") if row[1] != "id")
    ids = ", ".join(f"('copy{number:06}')" for number in range(59))
    with sqlite3.connect(world.state / "store.db", timeout=30) as store:
        store.execute(f"INSERT INTO tasks (id, {names}) SELECT column1, {names} FROM tasks, (VALUES {ids})")
    assert len(world.json("list")) == 60
    assert len(world.json("list", "-n", "7")) == 7
    assert "shunter list -n 100" in world.out("list")


def test_no_more_turns_run_at_once_than_there_are_slots(world):
    world.configure(slots=2)
    script = f'echo + >> "{world.marks}/log"; sleep 0.3; echo - >> "{world.marks}/log"'
    ids = [world.submit(script) for _ in range(5)]
    world.wait(*ids)
    depth = peak = 0
    for mark in (world.marks / "log").read_text().split():
        depth += 1 if mark == "+" else -1
        peak = max(peak, depth)
    assert (depth, peak) == (0, 2)


def test_higher_priority_goes_first_and_then_the_order_of_submission(world):
    world.configure(slots=1)
    blocker = world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done')
    script = f'cat >> "{world.marks}/order"; echo >> "{world.marks}/order"'
    ids = [world.submit(script, prompt=name) for name in ("a", "b")]
    ids.append(world.submit(script, "--priority", "5", prompt="urgent"))
    (world.marks / "go").touch()
    world.wait(blocker, *ids)
    assert (world.marks / "order").read_text().split() == ["urgent", "a", "b"]


def test_two_homes_live_side_by_side_on_one_account(tmp_path):
    worlds = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        worlds.append(World(tmp_path / name))
    try:
        ids = [world.submit("echo x > x.txt; sleep 0.2") for world in worlds]
        for world, task in zip(worlds, ids, strict=True):
            world.wait(task, status=0)
            assert [each["id"] for each in world.json("list")] == [task]
            eventually(lambda world=world: len(world.dispatcher_pids()) <= 1)
    finally:
        for world in worlds:
            world.close()


def test_a_task_closes_by_itself_when_asked(world):
    task = world.submit("echo x > x.txt", "--close-on", "done")
    (status,) = world.wait(task, status=0)
    status = eventually(lambda: (found := world.json("status", task))["state"] == "closed" and found)
    assert status["phrase"] == "done (closed)"
    assert not (world.data / "tasks" / task).exists()
    assert world.git("show", f"{status['ref']}:x.txt") == "x"
    kept = world.submit("exit 3", "--close-on", "done")
    world.wait(kept, status=3)
    assert world.json("status", kept)["state"] == "open"


def test_follow_shows_every_byte_once_while_it_is_written(world):
    task = world.submit(
        f'for i in 1 2 3 4 5; do echo line $i; while [ ! -e "{world.marks}/$i" ]; do sleep 0.02; done; done; touch x'
    )
    logs = world.start("logs", "-f", task)
    assert logs.stdout is not None
    for number in range(1, 6):
        assert logs.stdout.readline().decode() == f"line {number}\n"
        (world.marks / str(number)).touch()
    assert logs.communicate(timeout=30)[0] == b""
    assert logs.returncode == 0
    world.wait(task, status=0)


def test_follow_shows_a_line_that_stops_in_the_middle(world):
    task = world.submit(
        f'printf "Overwrite file? [y/N] "; while [ ! -e "{world.marks}/go" ]; do sleep 0.02; done; echo no'
    )
    logs = world.start("logs", "-f", task)
    assert logs.stdout is not None
    assert logs.stdout.read(22) == b"Overwrite file? [y/N] ", "the agent still waits"
    (world.marks / "go").touch()
    assert logs.communicate(timeout=30)[0] == b"no\n"
    assert world.out("logs", task) == "Overwrite file? [y/N] no"


def test_logs_leave_out_what_came_before_a_time(world):
    # Times are noted once a second, so the new line comes more than that behind the old one.
    script = f'echo old; while [ ! -e "{world.marks}/go" ]; do sleep 0.02; done; sleep 1.2; echo new; touch x'
    task = world.submit(script)
    eventually(lambda: world.out("logs", task).split() == ["old"])
    (times,) = world.data.rglob("times.stdout")
    offset, at = times.read_text().split()
    times.write_text(f"{offset} {float(at) - 3600}\n")  # an hour ago
    assert world.out("logs", task, "--since", "10m") == ""
    assert world.out("logs", task, "--since", "2h").split() == ["old"]
    logs = world.start("logs", "-f", task, "--since", "10m")
    (world.marks / "go").touch()
    assert logs.communicate(timeout=30)[0] == b"new\n"
    world.wait(task, status=0)
    assert world.out("logs", task, "--since", "1d").split() == ["old", "new"]
    refused = world.run("logs", task, "--since", "yesterday", status=64)
    assert b"a duration" in refused.stderr


def test_following_goes_on_when_the_helper_of_the_follower_is_killed(world):
    task = world.submit(f'echo one; while [ ! -e "{world.marks}/go" ]; do sleep 0.02; done; echo two; touch x')
    logs = world.start("logs", "-f", task)
    assert logs.stdout is not None
    assert logs.stdout.readline() == b"one\n"
    for pid in world.helper_pids():
        os.kill(pid, 9)
    (world.marks / "go").touch()
    assert logs.communicate(timeout=30)[0] == b"two\n"


def test_wait_ends_in_time_and_the_task_goes_on(world):
    task = world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done; touch x')
    done = world.run("wait", task, "--timeout", "200ms", status=70)
    assert b"WAIT_TIMEOUT" in done.stderr
    (world.marks / "go").touch()
    world.wait(task, status=0)


def test_wait_tells_what_a_person_has_to_mend_and_nothing_that_passes(world):
    world.configure(slots=1)
    first = world.submit("sleep 60")
    eventually(lambda: world.json("status", first)["phrase"] == "running")
    task = world.submit("true")
    assert world.run("wait", task, "--timeout", "1s", status=70).stderr.decode().startswith("shunter: WAIT_TIMEOUT")
    world.run("host", "drain", "local", "--reason", "new disk")
    child = world.start("wait", task)
    assert child.stderr.readline().decode() == f"shunter: task {task} waits, local: drained by user: new disk\n"
    world.run("host", "enable", "local")
    world.run("cancel", first)
    assert child.wait(timeout=60) == 0 and child.stderr.read() == b""


def test_ids_may_be_shortened_and_ambiguous_ones_are_told(world):
    ids = [world.submit("touch x") for _ in range(3)]
    assert world.json("status", ids[0][:6])["id"] == ids[0]
    done = world.run("status", "", status=64)
    assert b"TASK_AMBIGUOUS" in done.stderr or b"TASK_UNKNOWN" in done.stderr
    world.wait(*ids)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_and_what_they_ask(world, shell):
    assert "shunter" in world.out("completion", shell)
    task = world.submit("touch x")
    world.wait(task, status=0)
    env = {"_SHUNTER_COMPLETE": "bash_complete", "COMP_WORDS": f"shunter result {task[:3]}", "COMP_CWORD": "2"}
    assert task in world.run(env=env, status=None).stdout.decode()


def test_timing_and_json_name_every_stage(world):
    task = world.submit("touch x")
    world.wait(task, status=0)
    stages = dict(world.json("status", task)["timing"][0]["stages"])
    assert all(stages[name] is not None for name in ("queue", "lease", "ship", "accept", "fetch", "all"))
    assert "submit to agent process" in world.out("status", task, "--timing")


def test_demo_works_and_touches_nothing_else(world):
    before = contents(world)
    done = subprocess.run(
        [SHUNTER, "demo"], env={**world.env, "TMPDIR": str(world.root)}, capture_output=True, timeout=60
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    (left,) = world.root.glob("shunter-demo-*")
    branches = subprocess.run(
        ["git", "-C", str(left / "project"), "branch", "-r"], capture_output=True, check=True
    ).stdout.split()
    assert len(branches) == 3
    assert contents(world) == before
    tag = str(left).encode()
    names = [name for name in os.listdir("/proc") if name.isdigit()]
    # It waits until the dispatcher has given up its place; the process itself takes a moment more.
    eventually(lambda: not [name for name in names if tag in read(f"/proc/{name}/environ")], limit_s=10)


def read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def test_host_check_proves_the_host_and_changes_nothing(world):
    findings = world.json("host", "check", "local")
    assert {finding["what"] for finding in findings} >= {"reached", "python", "git", "slots", "disk"}
    assert all(finding["ok"] is not False for finding in findings)
    assert re.search(r"agent codex|other agents .*codex", world.out("host", "check"))


def test_a_changed_configuration_holds_for_the_next_submit(world):
    world.configure(slots=1)
    script = f'echo x >> "{world.marks}/launches"; while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done'
    first = world.submit(script)
    eventually(world.launches)
    world.configure(slots=2)
    second = world.submit(script)
    eventually(lambda: world.launches() == 2)
    (world.marks / "go").touch()
    world.wait(first, second)


def test_readers_say_when_nobody_is_at_work(world):
    task = world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done; touch x')
    eventually(lambda: world.json("status", task)["phrase"] == "running")
    assert "Nobody is at work" not in world.out("list") + world.out("status", task)
    for pid in world.dispatcher_pids():
        os.kill(pid, 9)
    eventually(lambda: "Nobody is at work" in world.out("list"))
    assert "shunter reconcile" in world.out("status", task)
    assert "Nobody is at work" in world.out("result", task, status=70)
    (world.marks / "go").touch()
    followed = world.run("logs", "-f", task)  # the host tells, and nobody settles what it tells
    assert b"Nobody is at work" in followed.stderr
    world.out("reconcile")
    world.wait(task, status=0)


def test_a_task_that_cannot_fit_says_why_and_can_be_cancelled(world):
    task = world.submit("touch x", "--memory-mb", "100000000")
    eventually(lambda: "really free" in world.out("status", task))
    assert "cancelled" in world.out("cancel", task)
    assert world.json("list")[0]["phrase"] == "cancelled", "what never ran is still told"
    world.out("close", task)
    assert world.json("list") == []


def test_help_is_help(world):
    for words in ((), ("host",), ("config",), ("--help",), ("submit", "--help")):
        done = world.run(*words, status=0)
        assert b"Usage: shunter" in done.stdout
        assert b"\\x0a" not in done.stdout
    assert b"did you mean" in world.run("sumbit", status=64).stderr
