"""Cancel while waiting, dispatching, running and ended (P11, P12); the terminal has no say."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

from e2e_world import SHUNTER, eventually, quoted

STUBBORN = "trap '' TERM; echo launched >> \"{marks}/launches\"; echo kept > kept.txt; while :; do sleep 1; done"


def test_cancel_before_any_dispatcher_looked_touches_no_host(world):
    world.configure(slots=1)
    first = world.submit(f'echo x >> "{world.marks}/launches"; sleep 60')
    eventually(world.launches)
    second = world.submit(f'echo x >> "{world.marks}/second"')
    assert "cancelled" in world.out("cancel", second)
    status = world.json("status", second)
    assert (status["state"], status["turn"]["state"], status["attempts"]) == ("abandoned", "cancelled", [])
    assert world.ledger(f"SELECT * FROM attempt WHERE job_id = '{second}-1'") == []
    world.out("cancel", first)
    assert world.launches("second") == 0
    world.assert_nothing_left_over()


def test_cancel_of_a_running_turn_ends_the_whole_tree_and_keeps_the_work(world):
    task = world.submit(STUBBORN.format(marks=world.marks) + " & (setsid setsid sleep 300 &); wait")
    eventually(world.launches)
    assert "cancelled" in world.out("cancel", task)
    (status,) = world.wait(task)
    assert (status["turn"]["state"], status["state"]) == ("cancelled", "open")
    assert world.git("show", f"shunter/local/task/{task}:kept.txt") == "kept"
    assert "cancelled" in world.out("cancel", task), "repeating it is harmless"
    world.assert_nothing_left_over()


def test_cancel_of_a_turn_that_is_over_changes_nothing(world):
    task = world.submit("echo x > x.txt")
    world.wait(task, status=0)
    world.out("cancel", task)
    assert world.json("status", task)["phrase"] == "done"


def test_cancel_at_every_step_before_acceptance_starts_nothing(world):
    """The flag is read before each remote step: set it at each boundary in turn, and the agent never runs."""
    script = Path(__file__).parent / "cancelling_dispatcher.py"
    for boundary in ("before claimed", "before leased", "recording shipped"):
        eventually(lambda: world.dispatcher_pids() == [])
        dispatcher = subprocess.Popen(
            [sys.executable, str(script), boundary], env=world.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert dispatcher.stdout is not None
            assert dispatcher.stdout.readline() == b"ready\n"
            task = world.submit(f'echo x >> "{world.marks}/launches"')
            (status,) = world.wait(task)
            assert (status["turn"]["state"], status["state"]) == ("cancelled", "abandoned"), (
                boundary,
                status["events"],
                world.log(),
            )
        finally:
            dispatcher.kill()
            dispatcher.wait()
    assert world.launches() == 0
    world.assert_nothing_left_over()


def test_ctrl_c_during_wait_cancels_nothing(world):
    child = world.start("submit", "--wait", "-a", "exec:sh -c " + quoted(f'sleep 1; touch "{world.marks}/ran"'), "go")
    eventually(lambda: world.run("list", "--json", status=None).stdout not in (b"", b"[]\n"))
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=20) == 130
    (task,) = [each["id"] for each in world.json("list")]
    world.wait(task, status=0)
    assert (world.marks / "ran").exists()


def test_the_work_goes_on_when_the_terminal_is_closed(world):
    controller, terminal = pty.openpty()
    command = "exec:sh -c " + quoted(f'sleep 1; touch "{world.marks}/ran"')
    child = subprocess.Popen(
        [SHUNTER, "submit", "--wait", "-a", command, "go"],
        cwd=world.repo,
        env=world.env,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(terminal)
    assert os.read(controller, 100)
    os.close(controller)  # the kernel hangs up: SIGHUP to the session
    child.wait(timeout=30)
    eventually((world.marks / "ran").exists)
    (task,) = [each["id"] for each in world.json("list")]
    (status,) = world.wait(task, status=0)
    assert status["phrase"] == "no_changes"


def test_logs_into_head_cancels_nothing(world):
    task = world.submit(f'while [ ! -e "{world.marks}/go" ]; do echo line; sleep 0.05; done; echo x > x.txt')
    logs = world.start("logs", "-f", task)
    assert logs.stdout is not None
    assert logs.stdout.readline() == b"line\n"
    logs.stdout.close()
    assert logs.wait(timeout=20) == 0
    assert world.json("status", task)["phrase"] == "running"
    (world.marks / "go").touch()
    (status,) = world.wait(task, status=0)
    assert status["phrase"] == "done"
