"""Ctrl-C and lost output: what was stored is told by its id, whatever the moment; before that nothing is stored."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from e2e_world import SHUNTER, World, eventually, quoted

AGENT = ("-a", "exec:sh -c 'echo x >> x'")
SUBMITS = [("submit", *AGENT, "go"), ("submit", "--json", *AGENT, "go"), ("submit", "--wait", "--json", *AGENT, "go")]
SAYS = [("say", "more"), ("say", "--wait", "--json", "more")]


def words_of(ways):
    return " ".join(each for each in ways if not each.startswith("exec"))


@pytest.fixture(params=[*SUBMITS, *SAYS], ids=words_of)
def words(request, world):
    """A command that stores something; for a message with its task, whose turn is over."""
    name, *rest = request.param
    if name != "say":
        return request.param
    return "say", world.json("submit", "--wait", *AGENT, "go")["id"], *rest


def begin(world: World, *words: str, **options) -> subprocess.Popen:
    return world.start(*words, start_new_session=True, **options)  # a process group, as a terminal has one a command


def interrupt(child: subprocess.Popen) -> None:
    os.killpg(child.pid, signal.SIGINT)


def turns_of(world: World) -> list[str]:
    return [turn for (turn,) in world.store("SELECT id FROM turns ORDER BY created_at")]


def assert_told(world: World, words: tuple[str, ...], said: bytes, *, but: str = "") -> None:
    """The newest turn, which is the only new one, is named in words; it is over in the end, and is not repeated."""
    turns = turns_of(world)
    task, number = turns[-1].rsplit("-", 1)
    assert len(turns) == (2 if words[0] == "say" else 1)
    text = said.decode()
    what = f"task {task} is stored and goes on" if words[0] == "submit" else f"turn {number} of task {task} is stored"
    assert what in text and but in text and f"do not {words[0]} it again; shunter status {task}" in text, text
    assert "Traceback" not in text
    world.wait(task, status=0)


def test_while_it_is_stored(world, words):
    world.run("reconcile")  # makes the store
    had = len(list((world.state / "prompts").glob("*")))
    with closing(sqlite3.connect(world.state / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        child = begin(world, *words)
        eventually(lambda: len(list((world.state / "prompts").glob("*"))) > had)
        eventually(lambda: "nanosleep" in Path(f"/proc/{child.pid}/wchan").read_text())  # it waits for the lock
        interrupt(child)
        other.execute("ROLLBACK")
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    if "--json" in words:
        error = json.loads(out)["error"]
        assert error["code"] == "INTERRUPTED" and turns_of(world)[-1].rsplit("-", 1)[0] in error["text"]
    assert_told(world, words, err)


def test_while_the_dispatcher_is_woken(world, words):
    log = world.state / "dispatcher.log"
    eventually(lambda: not world.dispatcher_pids())
    world.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    os.mkfifo(log)  # nobody reads it yet, so the command waits when it opens the log for the dispatcher
    child = begin(world, *words)
    eventually(lambda: "wait_for_partner" in Path(f"/proc/{child.pid}/wchan").read_text())
    interrupt(child)
    reading = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    try:
        err = child.communicate(timeout=60)[1]
        log.unlink()
        assert child.returncode == 130, err
        assert_told(world, words, err)
    finally:
        os.close(reading)


def test_while_its_id_cannot_be_written(world, words):
    if "--wait" in words:
        pytest.skip("writes its id last")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    child = begin(world, *words, stdout=writing)
    eventually(lambda: "pipe" in Path(f"/proc/{child.pid}/wchan").read_text() and len(turns_of(world)))
    os.close(writing)
    interrupt(child)
    err = child.communicate(timeout=60)[1]
    os.close(reading)
    assert child.returncode == 130, err
    assert_told(world, words, err)


def test_while_json_is_waited_for(world):
    child = begin(world, "submit", "--wait", "--json", "-a", f"exec:sh -c {quoted('sleep 1; echo x > x')}", "go")
    eventually(lambda: world.run("list", "--json", status=None).stdout not in (b"", b"[]\n"))
    interrupt(child)
    err = child.communicate(timeout=60)[1]
    assert child.returncode == 130
    assert_told(world, ("submit",), err)


def test_before_anything_is_stored(world):
    child = begin(world, "submit", *AGENT, "-f", "-", stdin=subprocess.PIPE)
    eventually(lambda: "pipe" in Path(f"/proc/{child.pid}/wchan").read_text())
    interrupt(child)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out, err.strip()) == (130, b"", b"")
    assert world.json("list") == []


def test_while_the_command_is_loaded(world):
    slow = world.root / "slow"
    slow.mkdir()
    (slow / "click.py").write_text("import time\nopen('/dev/stdout', 'w').write('up\\n')\ntime.sleep(60)\n")
    world.env["PYTHONPATH"] = str(slow)
    child = begin(world, "list")
    assert child.stdout is not None and child.stdout.readline() == b"up\n"
    interrupt(child)
    assert (child.communicate(timeout=60)[1], child.returncode) == (b"", 130)


def test_an_ignored_ctrl_c_stays_ignored(world):
    child = begin(world, "submit", *AGENT, "-f", "-", stdin=subprocess.PIPE, preexec_fn=ignore_interrupts)
    eventually(lambda: "pipe" in Path(f"/proc/{child.pid}/wchan").read_text())
    interrupt(child)
    out, err = child.communicate(b"go", timeout=60)
    assert (child.returncode, err) == (0, b"")
    world.wait(out.decode().strip(), status=0)


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_an_output_that_was_closed(world, words):
    line = " ".join(map(quoted, (SHUNTER, *words)))
    done = subprocess.run(["sh", "-c", f"{line} >&-"], cwd=world.repo, env=world.env, capture_output=True, timeout=60)
    assert done.returncode == 74, done.stderr
    assert_told(world, words, done.stderr, but="its id could not be written: Bad file descriptor")
