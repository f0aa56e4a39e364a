"""Ending a turn, or what it left: the whole tree goes, the agent gets its grace, nobody else is hit (S7, S11)."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .world import (
    HELPER_PYTHON,
    LIMITS,
    Attempt,
    World,
    children_of,
    is_alive,
    lines_of,
    processes_of,
    until,
)

PYTHON = (sys.executable, "-I", "-S", "-c")
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
SHORT = dataclasses.replace(LIMITS, term_grace_s=0.3)
PATIENT = dataclasses.replace(LIMITS, term_grace_s=60.0)


def wait_output(world: World, attempt: Attempt, text: bytes) -> None:
    path = world.job(attempt) / "stdout"
    until(lambda: path.exists() and text in path.read_bytes(), what=f"{text!r} on stdout")


def outside_cgroup(root: Path) -> str:
    """An interpreter that sees no cgroup of version 2, so that a supervisor has to do without."""
    if os.geteuid() != 0 or not Path("/sys/fs/cgroup/unified").is_dir():
        pytest.skip("needs root and a cgroup hierarchy of version 2 to hide")
    wrapper = root / "python-without-cgroup"
    inside = 'umount -l /sys/fs/cgroup/unified && exec "$0" "$@"'
    wrapper.write_text(f"#!/bin/sh\nexec unshare -m sh -c '{inside}' {HELPER_PYTHON} \"$@\"\n")
    wrapper.chmod(0o755)
    return str(wrapper)


@pytest.fixture(params=["cgroup", "no cgroup"])
def any_world(request: pytest.FixtureRequest, tmp_path: Path, make_world: Callable[..., World]) -> World:
    if request.param == "cgroup":
        return make_world()
    return make_world(python=outside_cgroup(tmp_path))


# --- time limit and cancel ------------------------------------------------------------------------------------------


def test_a_time_limit_ends_an_agent_that_ignores_sigterm(world: World) -> None:
    attempt, status = world.run(*PYTHON, STUBBORN, limits=SHORT, timeout_s=0.5)
    assert status.end is not None
    assert (status.end.outcome, status.end.reason) == ("timed_out", "timeout")
    assert status.end.signal == signal.SIGKILL
    assert not processes_of(attempt.id)


def test_an_agent_has_its_grace_to_end_well(world: World) -> None:
    code = (
        "import signal, sys, time\n"
        "def end(*_): print('bye', flush=True); open('left.txt', 'w').write('kept'); sys.exit(3)\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(600)\n"
    )
    attempt = world.start(*PYTHON, code, limits=PATIENT)
    wait_output(world, attempt, b"up")
    world.cancel(attempt)
    end = world.wait(attempt).end
    assert end is not None
    assert (end.outcome, end.exit_code) == ("cancelled", 3)
    assert world.read_log(attempt)[0] == b"up\nbye\n"
    assert world.published(attempt, "left.txt") == "kept"


def test_cancel_ends_an_agent_that_ignores_sigterm_and_may_be_repeated(world: World) -> None:
    attempt = world.start(*PYTHON, STUBBORN, limits=SHORT)
    wait_output(world, attempt, b"up")
    for _ in range(3):
        assert world.cancel(attempt).cancel_requested
    end = world.wait(attempt).end
    assert end is not None
    assert (end.outcome, end.signal) == ("cancelled", signal.SIGKILL)


def test_sigterm_reaches_what_the_agent_started_in_another_session(world: World) -> None:
    inner = (
        "import signal, sys, time\n"
        "def end(*_): open('inner.txt', 'w').write('told'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end); print('up', flush=True); time.sleep(600)\n"
    )
    code = f"import subprocess, sys; subprocess.run({[*PYTHON, inner]!r}, start_new_session=True)"
    attempt = world.start(*PYTHON, code, limits=dataclasses.replace(LIMITS, background_grace_s=60.0))
    wait_output(world, attempt, b"up")
    world.cancel(attempt)
    world.wait(attempt)
    assert world.published(attempt, "inner.txt") == "told"


def test_a_stopped_agent_is_ended_too(world: World) -> None:
    attempt = world.start("sh", "-c", "echo up; kill -STOP $$; echo never", limits=SHORT)
    wait_output(world, attempt, b"up")
    world.cancel(attempt)
    end = world.wait(attempt).end
    assert end is not None and end.outcome == "cancelled"


def test_cancel_before_the_launch_starts_nothing(world: World, outside: Path) -> None:
    attempt = world.prepare("sh", "-c", f"echo launched >> {outside}/marks")
    let_go = hold_launches(world)
    world.accept(attempt)
    world.cancel(attempt)
    assert not (world.job(attempt) / "supervisor").exists()
    let_go()
    end = world.wait(attempt).end
    assert end is not None
    assert (end.outcome, end.reason) == ("cancelled", "cancel")
    assert not list(lines_of(outside / "marks"))
    assert world.slots_used() == 0


def hold_launches(world: World) -> Callable[[], None]:
    """Keep supervisors from starting, by moving their program away, until the function that comes back is called.

    That opens a further session: each one starts at once what it finds accepted and not launched. The fork
    server of one that has started something holds the program, so it goes too.
    """
    for pid in children_of(world.client.session().hello.pid):
        if b"host.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    aside = world.data_root / "held"
    program = next((world.data_root / "lib").glob("*/shunter/host/supervisor.py"))
    cached = list(program.parent.glob("__pycache__/supervisor.*"))
    program.rename(aside)
    for path in cached:
        path.unlink()

    def let_go() -> None:
        aside.rename(program)
        world.new_client().session()

    return let_go


def test_cancel_after_the_end_changes_nothing(world: World) -> None:
    attempt, before = world.run("sh", "-c", "echo done > new.txt")
    after = world.cancel(attempt)
    assert (after.state, after.end, after.cancel_requested) == ("ended", before.end, False)


def test_a_late_cancel_never_hits_the_publisher(world: World) -> None:
    """Cancels rain down from the first moment to the last; whenever the agent had ended by itself, its word stands."""
    code = "import os\nfor n in range(300): open(f'file{n}', 'w').write('x' * 100)\nprint('up', flush=True)\n"
    attempt = world.start(*PYTHON, code)
    until(lambda: world.status(attempt).state in ("exited", "ended"), what="the publisher")
    while world.status(attempt).state != "ended":
        world.cancel(attempt)
    end = world.wait(attempt).end
    assert end is not None and end.publication is not None
    assert (end.outcome, end.exit_code) == ("done", 0)
    assert end.publication.files_total == 300


def test_sigterm_from_outside_ends_the_turn_in_order(world: World) -> None:
    attempt = world.start("sh", "-c", "echo half > work.txt; echo up; sleep 600")
    wait_output(world, attempt, b"up")
    os.kill(world.supervisor(attempt)["pid"], signal.SIGTERM)
    end = world.wait(attempt).end
    assert end is not None
    assert (end.outcome, end.reason) == ("lost", "terminated")
    assert world.published(attempt, "work.txt") == "half"


# --- the tree -------------------------------------------------------------------------------------------------------

DAEMON = """
import os, sys, time
def daemonise():
    for _ in range(2):
        if os.fork(): os._exit(0)
        os.setsid()
pid = os.fork()
if pid == 0:
    daemonise()
    open(sys.argv[1], "w").write(str(os.getpid()))
    {more}
    time.sleep(600)
while not os.path.exists(sys.argv[1]) or not open(sys.argv[1]).read(): time.sleep(0.005)
"""


@pytest.mark.parametrize("more", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"])
def test_a_daemon_of_two_sessions_is_ended_and_counted(any_world: World, outside: Path, more: str) -> None:
    world = any_world
    attempt, status = world.run(*PYTHON, DAEMON.format(more=more), str(outside / "pid"))
    assert status.end is not None
    assert (status.end.outcome, status.end.background) == ("no_changes", 1)
    assert not is_alive(int((outside / "pid").read_text()))
    assert not processes_of(attempt.id)


def test_a_daemon_without_the_tag_is_ended(any_world: World, outside: Path) -> None:
    code = DAEMON.format(more="os.execve(sys.executable, [sys.executable, '-c', 'import time; time.sleep(600)'], {})")
    _, status = any_world.run(*PYTHON, code, str(outside / "pid"))
    assert status.end is not None and status.end.background == 1
    assert not is_alive(int((outside / "pid").read_text()))


def test_who_keeps_the_pipe_open_does_not_delay_the_end(any_world: World) -> None:
    attempt, status = any_world.run("sh", "-c", "setsid sleep 600 & echo over")
    assert status.end is not None and status.end.background == 1
    assert any_world.read_log(attempt)[0] == b"over\n"


def test_who_goes_on_writing_does_not_delay_the_end(any_world: World) -> None:
    attempt, status = any_world.run("sh", "-c", "setsid yes & echo over; exit 4")
    assert status.end is not None
    assert (status.end.exit_code, status.end.background) == (4, 1)
    assert not processes_of(attempt.id)


def test_a_fork_storm_is_ended(any_world: World) -> None:
    """Every process starts another and goes, for ten seconds at most, in fifty lines of descent."""
    code = (
        "import os, time\n"
        "end = time.monotonic() + 10\n"
        "for _ in range(50):\n"
        "    if os.fork() == 0:\n"
        "        while time.monotonic() < end:\n"
        "            if os.fork(): os._exit(0)\n"
        "            os.setsid()\n"
        "        os._exit(0)\n"
    )
    attempt, status = any_world.run(*PYTHON, code)
    assert status.end is not None and status.end.background >= 1
    assert not processes_of(attempt.id)


def test_nothing_is_counted_when_the_agent_left_nothing(any_world: World) -> None:
    _, status = any_world.run("sh", "-c", "sleep 0.01 & wait; true")
    assert status.end is not None and status.end.background == 0


def test_neighbours_of_a_cancelled_turn_go_on(world: World) -> None:
    attempts = [world.start("sh", "-c", "echo up; sleep 600") for _ in range(3)]
    for attempt in attempts:
        wait_output(world, attempt, b"up")
    world.cancel(attempts[1])
    world.wait(attempts[1])
    assert [world.status(each).state for each in attempts] == ["launched", "ended", "launched"]
    for attempt in attempts:
        world.cancel(attempt)
        world.wait(attempt)
