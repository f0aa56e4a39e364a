"""Turns that a session starts and ends by fork, and what becomes of them where that fails."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path

from shunter.host.ending import end_attempt
from shunter.host.flock import hold_lock

from .world import World, children_of, git, is_alive, until


def fork_servers(world: World) -> list[int]:
    """The one that ends turns; also the one that starts them, once something was started."""
    return children_of(world.client.session().hello.pid)


def end_server(world: World) -> int:
    """While nothing was started yet."""
    return until(lambda: fork_servers(world), what="a fork server")[0]


def endings(world: World) -> int:
    with sqlite3.connect(world.layout.ledger) as ledger:
        return int(ledger.execute("SELECT count(*) FROM audit WHERE what = 'ended'").fetchone()[0])


def test_a_session_needs_no_new_interpreter(world: World) -> None:
    world.run("true")
    library = next((world.data_root / "lib").iterdir())
    for name in ("supervisor", "ending"):
        for path in library.rglob(f"{name}*.py*"):
            path.unlink()
    attempt, status = world.run("sh", "-c", "echo work > work.txt")
    assert status.end is not None and status.end.reason == "exit"
    assert world.published(attempt, "work.txt") == "work"


def test_without_fork_servers_turns_start_and_end(world: World) -> None:
    world.run("true")
    killed = fork_servers(world)
    assert len(killed) == 2
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    attempt, status = world.run("sh", "-c", "echo work > work.txt")
    assert status.end is not None and status.end.outcome == "done"
    assert world.published(attempt, "work.txt") == "work"
    assert not list(Path(world.layout.run).glob("*.ends")), "the name of one that is dead is taken away"


def test_fork_servers_go_with_their_session_and_turns_stay(world: World) -> None:
    attempt = world.start("sh", "-c", "sleep 1; echo work > work.txt")
    servers = fork_servers(world)
    assert len(servers) == 2
    world.client.close()
    until(lambda: not any(map(is_alive, servers)), what="the end of the fork servers")
    world.client = world.new_client()
    assert world.wait(attempt).end is not None
    assert world.published(attempt, "work.txt") == "work"


def test_a_fork_that_dies_leaves_the_end_to_the_supervisor(world: World) -> None:
    server = end_server(world)
    attempt = world.start("sh", "-c", "sleep 1; echo work > work.txt")
    with hold_lock(world.layout.task_lock(attempt.spec.task_id)):  # the fork gets as far as this
        fork = until(lambda: children_of(server), what="a fork that ends the turn")[0]
        os.kill(fork, signal.SIGKILL)
    status = world.wait(attempt)
    assert status.end is not None and status.end.outcome == "done"
    assert world.published(attempt, "work.txt") == "work"


def test_a_fork_server_that_is_silent_is_not_waited_for(world: World) -> None:
    server = end_server(world)
    os.kill(server, signal.SIGSTOP)
    try:
        attempt, status = world.run("sh", "-c", "echo work > work.txt")
    finally:
        os.kill(server, signal.SIGCONT)
    assert status.end is not None and status.end.outcome == "done"
    until(lambda: not children_of(server), what="the fork that comes too late")
    assert world.published(attempt, "work.txt") == "work"
    assert endings(world) == 1


def test_names_that_a_power_cut_left_are_swept(world: World) -> None:
    world.run("true")
    run = Path(world.layout.run)
    ours = {each.name for each in run.glob("*.ends")}
    (run / "0123456789abcdef.4194305.ends").touch()  # of another version; no pid is as high
    other = world.new_client()
    assert other.session()
    until(lambda: len(names := {each.name for each in run.glob("*.ends")}) == 2 and ours < names, what="a sweep")


def test_an_end_that_is_repeated_does_not_touch_the_next_turns_work(world: World) -> None:
    attempt, _ = world.run("sh", "-c", "echo work > work.txt")
    mirror = world.layout.mirror(world.project_id)
    head = git(mirror, "rev-parse", f"task/{attempt.spec.task_id}")
    (world.workspace(attempt) / "half.txt").write_text("half of a thing")
    end_attempt(str(world.data_root), attempt.id)
    assert git(mirror, "rev-parse", f"task/{attempt.spec.task_id}") == head
