"""A killed supervisor, publisher or session: what is done is finished, what is not is lost, and no stranger is hit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shunter.host import identity
from shunter.wire.errors import ShunterError

from .test_stopping import hold_launches, wait_output
from .world import World, all_pids, code_of, environment_of, is_alive, lines_of, processes_of, stop, until

TREE = "echo part > work.txt; setsid sleep 601 & (setsid sh -c 'sleep 602 & sleep 603' &) ; echo up; sleep 604"


@pytest.fixture
def strangers() -> Iterator[Any]:
    """Processes that look much like an attempt's."""
    started: list[subprocess.Popen[bytes]] = []

    def start(**env: str) -> int:
        started.append(subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **env}))
        pid = started[-1].pid
        until(lambda: all(f"{k}={v}".encode() in environment_of(pid) for k, v in env.items()), what="its environment")
        return pid

    yield start
    for process in started:
        stop(process)


def test_a_killed_supervisor_loses_the_turn_but_not_its_work(world: World, strangers: Any) -> None:
    attempt = world.start("sh", "-c", TREE)
    wait_output(world, attempt, b"up")
    foreign = [
        strangers(SHUNTER_ATTEMPT=attempt.id + "x"),
        strangers(SHUNTER_ATTEMPT=attempt.id[:-1]),
        strangers(XSHUNTER_ATTEMPT=attempt.id),
        strangers(OTHER=f"SHUNTER_ATTEMPT={attempt.id}"),
        strangers(SHUNTER_ATTEMPT="7k2m9x4q1c-1-x81tfa"),
    ]
    assert len(until(lambda: (p := processes_of(attempt.id)) and len(p) >= 6 and p, what="the tree")) >= 6
    os.kill(world.supervisor(attempt)["pid"], signal.SIGKILL)
    end = world.wait(attempt).end
    assert end is not None
    assert (end.outcome, end.reason, end.error_code) == ("lost", "supervisor_died", "TURN_LOST")
    assert "supervisor_died" in end.evidence
    assert not processes_of(attempt.id)
    assert all(is_alive(pid) for pid in foreign)
    assert world.published(attempt, "work.txt") == "part"
    assert world.read_log(attempt)[0] == b"up\n"
    assert world.slots_used() == 0
    assert (world.workspace(attempt) / "work.txt").exists()


def test_what_took_the_tag_off_is_found_by_where_it_stands(world: World, strangers: Any) -> None:
    """A daemon without environment, session and parent; somebody's program elsewhere is not touched."""
    mark = f"701{os.getpid()}"
    attempt = world.start("sh", "-c", f"echo part > work.txt; setsid env -i sleep {mark} & echo up; sleep 600")
    wait_output(world, attempt, b"up")
    foreign = strangers(SOME="THING")
    os.kill(world.supervisor(attempt)["pid"], signal.SIGKILL)
    assert world.wait(attempt).end is not None
    assert not [pid for pid in all_pids() if f"sleep\0{mark}\0".encode() == command_of(pid)]
    assert is_alive(foreign)
    assert world.published(attempt, "work.txt") == "part"


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_recorded_pid_that_is_a_strangers_now_gets_no_signal(world: World, strangers: Any) -> None:
    attempt = world.start("sh", "-c", "echo up; sleep 600")
    wait_output(world, attempt, b"up")
    path = world.job(attempt) / "supervisor"
    real = world.supervisor(attempt)
    stranger = strangers(SOME="THING")
    started = identity.start_time(stranger)
    for forged in ({"pid": stranger, "start_time": (started or 0) - 1}, {"pid": stranger, "start_time": None}):
        path.write_text(json.dumps({**real, **forged}))
        world.cancel(attempt)
        assert is_alive(stranger)
    world.wait(attempt)  # of the cancel, which needs no pid, or of recovery, which finds the tree by its tag
    assert is_alive(stranger)


def test_without_a_start_time_nobody_is_taken_for_dead(world: World) -> None:
    attempt = world.start("sh", "-c", "echo up; sleep 600")
    wait_output(world, attempt, b"up")
    path = world.job(attempt) / "supervisor"
    path.write_text(json.dumps({**world.supervisor(attempt), "start_time": None}))
    world.run("true")  # a second or more in which sessions look after every attempt
    world.new_client().session()
    until(lambda: len(list(Path(world.layout.run).glob("*.bell"))) == 2, what="a second session")
    assert world.status(attempt).state == "launched"
    assert processes_of(attempt.id)
    world.cancel(attempt)
    end = world.wait(attempt).end
    assert end is not None and end.outcome == "cancelled"


def test_a_signal_goes_to_the_checked_process_or_to_nobody(strangers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = strangers(A="B")
    started = identity.start_time(pid)
    assert started is not None
    assert not identity.signal_process(pid, started + 1, signal.SIGKILL)
    assert not identity.signal_process(pid, None, signal.SIGKILL)
    with monkeypatch.context() as patched:
        patched.delattr(os, "pidfd_open")
        assert not identity.can_signal()
        assert not identity.signal_process(pid, started, signal.SIGKILL)
    assert is_alive(pid)
    assert identity.signal_process(pid, started, signal.SIGKILL)
    until(lambda: not is_alive(pid), what="its end")


def test_a_publisher_that_was_killed_is_finished_with_the_true_outcome(world: World) -> None:
    """Killed as soon as `.exited` stands: the agent's own end is known, so it is no loss."""
    for number in range(4):
        attempt = world.start("sh", "-c", f"echo {number} > work.txt; exit {number % 2}")
        exited = Path(world.layout.signal(attempt.id, "exited"))
        until(exited.exists, what=".exited")
        pid = world.supervisor(attempt)["pid"]
        seen = random.Random(number).random() * 0.15
        give_up = until_elapsed(seen)
        until(lambda give_up=give_up: give_up(), what="a moment")  # type: ignore[misc]
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
        end = world.wait(attempt).end
        assert end is not None and end.publication is not None
        assert (end.exit_code, end.reason) == (number % 2, "exit")
        assert end.outcome == ("failed" if number % 2 else "done")
        assert world.published(attempt, "work.txt") == str(number)
    assert world.slots_used() == 0


def until_elapsed(seconds: float) -> Any:
    import time

    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def kill_session(world: World) -> int:
    session = world.client.session()
    os.kill(session.hello.pid, signal.SIGKILL)
    until(lambda: session.ended, what="the end of the session")
    return session.hello.pid


def test_a_turn_needs_no_session(world: World) -> None:
    attempt = world.start("sh", "-c", f"until [ -e {world.root}/go ]; do sleep 0.01; done; echo late > work.txt")
    world.wait(attempt, "launched")
    helper = kill_session(world)
    (world.root / "go").touch()
    end = world.wait(attempt).end  # over a new session
    assert end is not None and end.outcome == "done"
    assert world.client.session().hello.pid != helper
    assert world.published(attempt, "work.txt") == "late"


def test_a_session_killed_anywhere_in_an_acceptance_launches_once_or_never(world: World, outside: Path) -> None:
    """Thirty times: accept, kill the session after a random moment, accept again with the same id, count launches."""
    chance = random.Random(20)
    for number in range(30):
        marks = outside / f"marks{number}"
        attempt = world.prepare("sh", "-c", f"echo launched >> {marks}")
        session = world.client.session()
        after_s = chance.random() * 0.2
        killer = subprocess.Popen(["sh", "-c", f"sleep {after_s:.3f}; kill -9 {session.hello.pid}"])
        try:
            world.accept(attempt)
        except ShunterError as exc:
            assert exc.code == "HOST_UNREACHABLE", exc.text
        killer.wait(timeout=30)
        until(lambda session=session: session.ended, what="its end")  # type: ignore[misc]
        status = world.accept(attempt)
        assert status.state in ("accepted", "launched", "exited", "ended")
        end = world.wait(attempt).end
        assert end is not None and end.outcome == "no_changes"
        assert list(lines_of(marks)) == ["launched"]
    assert world.slots_used() == 0


def test_what_was_accepted_and_never_launched_is_launched_by_a_later_session(world: World, outside: Path) -> None:
    world.run("true")
    let_go = hold_launches(world)
    attempt = world.start("sh", "-c", f"echo launched >> {outside}/marks")
    kill_session(world)
    let_go()
    world.wait(attempt)
    assert list(lines_of(outside / "marks")) == ["launched"]


def test_a_second_supervisor_of_an_attempt_launches_nothing(world: World, outside: Path) -> None:
    attempt, _ = world.run("sh", "-c", f"echo launched >> {outside}/marks")
    library = next((world.data_root / "lib").iterdir())
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from shunter.host.supervisor import main; main()"
    subprocess.run([sys.executable, "-I", "-c", code, str(library), str(world.job(attempt))], check=True, timeout=60)
    assert list(lines_of(outside / "marks")) == ["launched"]


def test_a_job_whose_files_are_gone_is_lost_and_holds_up_nobody(world: World) -> None:
    import shutil

    first = world.start("sh", "-c", "echo up; sleep 600")
    wait_output(world, first, b"up")
    second = world.start("sh", "-c", "echo up; sleep 600")
    wait_output(world, second, b"up")
    pids = [world.supervisor(each)["pid"] for each in (first, second)]
    shutil.rmtree(world.job(first))
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for each in (first, second):
        end = world.wait(each).end
        assert end is not None and end.outcome == "lost"
        assert not processes_of(each.id)
    assert world.slots_used() == 0


def test_a_signal_file_with_another_nonce_counts_for_nothing(world: World) -> None:
    attempt = world.start("sh", "-c", "echo up; sleep 600")
    wait_output(world, attempt, b"up")
    pairs = {"attempt": attempt.id, "nonce": "0" * 32, "reason": "exit", "exit_code": 0, "errno": 0, "at": 0.0}
    pairs |= dict.fromkeys(("signal", "cpu_s", "peak_rss_kib"))
    pairs |= dict.fromkeys(("background", "stdout_bytes", "stderr_bytes"), 0)
    exited = Path(world.layout.signal(attempt.id, "exited"))
    exited.write_text(json.dumps(pairs))
    assert world.status(attempt).state == "launched"
    os.kill(world.supervisor(attempt)["pid"], signal.SIGKILL)
    end = world.wait(attempt).end
    assert end is not None and end.outcome == "lost"


def test_an_unknown_attempt_is_unknown(world: World) -> None:
    attempt = world.prepare("true")
    assert world.status(attempt).state == "unknown"
    assert world.cancel(attempt).state == "unknown"
    assert world.read_log(attempt) == (b"", [])
    assert code_of(lambda: world.client.call("attempt.publish", attempt.ref)).code == "PROTOCOL"
