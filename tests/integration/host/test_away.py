"""A data root that takes nothing for a while when a turn ends: the end is written once it can be."""

from __future__ import annotations

import fcntl
import shutil
import time
from pathlib import Path

import pytest
from gone import take_away
from read_only import read_only

from shunter.wire.messages import FactsAsk

from .test_stopping import wait_output
from .world import Attempt, World, code_of, is_alive, processes_of, until

WORK = "echo up; until [ -e '{go}' ]; do sleep 0.01; done; echo x > work.txt"


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


def wchan(pid: int) -> str:
    """Where in the kernel it waits."""
    try:
        return Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return ""


# What time.sleep waits in, on x86-64 and aarch64: clock_nanosleep, or before Python 3.11 select or pselect6.
SLEEPS = ("230", "115", "23", "270", "72")


def is_pausing(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()[0] in SLEEPS
    except OSError:
        return False


def a_working_turn(world: World, go: Path) -> tuple[Attempt, int]:
    """Its supervisor is the only process of ours."""
    attempt = world.start("sh", "-c", WORK.format(go=go))
    wait_output(world, attempt, b"up")
    session = world.client.session()
    world.client.close()
    until(lambda: session.process.poll() is not None, what="the end of the session")
    until(lambda: not list(Path(world.layout.run).glob("*.ends")), what="the end of the fork server")
    return attempt, int(world.supervisor(attempt)["pid"])


def assert_done(world: World, attempt: Attempt) -> None:
    world.client = world.new_client()
    end = world.wait(attempt).end
    assert end is not None and end.publication is not None
    assert (end.outcome, end.reason, end.error_code) == ("done", "exit", None)
    assert end.publication.leftovers_committed
    assert world.published(attempt, "work.txt") == "x"
    assert world.slots_used() == 0


def test_a_data_root_that_is_moved_away_and_comes_back(world: World, go: Path) -> None:
    attempt, supervisor = a_working_turn(world, go)
    root, aside = world.data_root, world.root / "aside"
    root.rename(aside)
    go.touch()
    until(lambda: not processes_of(attempt.id), what="the agent's end")
    until(lambda: is_pausing(supervisor), what="a supervisor that waits")
    aside.rename(root)
    assert_done(world, attempt)


def test_a_file_system_that_is_read_only_for_a_while(world: World, go: Path) -> None:
    attempt, supervisor = a_working_turn(world, go)
    with read_only(world.data_root) as unmount:
        go.touch()
        until(lambda: not processes_of(attempt.id), what="the agent's end")
        until(lambda: is_pausing(supervisor), what="a supervisor that waits")
        assert not Path(world.layout.signal(attempt.id, "exited")).exists()
        unmount()
        assert_done(world, attempt)


@pytest.mark.parametrize("how", ["read-only", "moved"])
def test_what_happens_between_the_agents_end_and_its_publication_is_waited_out(
    world: World, go: Path, how: str
) -> None:
    attempt, supervisor = a_working_turn(world, go)
    with open(world.layout.task_lock(attempt.spec.task_id), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        go.touch()
        until(Path(world.layout.signal(attempt.id, "exited")).exists, what=".exited")
        until(lambda: "lock_inode" in wchan(supervisor), what="a publisher that waits")
        if how == "read-only":
            with read_only(world.data_root) as unmount:
                fcntl.flock(lock, fcntl.LOCK_UN)
                until(lambda: is_pausing(supervisor), what="a publisher that waits for its disk")
                unmount()
        else:
            aside = world.root / "aside"
            world.data_root.rename(aside)
            fcntl.flock(lock, fcntl.LOCK_UN)
            until(lambda: is_pausing(supervisor), what="a publisher that waits for its disk")
            aside.rename(world.data_root)
    assert_done(world, attempt)


def test_a_fork_that_publishes_waits_too_and_its_supervisor_with_it(world: World, go: Path) -> None:
    attempt = world.start("sh", "-c", WORK.format(go=go))
    wait_output(world, attempt, b"up")
    supervisor = int(world.supervisor(attempt)["pid"])
    with open(world.layout.task_lock(attempt.spec.task_id), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        go.touch()
        until(Path(world.layout.signal(attempt.id, "exited")).exists, what=".exited")
        with read_only(world.data_root) as unmount:
            fcntl.flock(lock, fcntl.LOCK_UN)
            until(lambda: [pid for pid in world.processes() if is_pausing(pid)], what="a publisher that waits")
            assert is_alive(supervisor)
            error = code_of(lambda: world.client.call("host.facts", FactsAsk()))
            assert error.code == "DISK_UNUSABLE" and error.hint, error.text
            unmount()
    assert_done(world, attempt)


def test_a_data_root_that_others_replaced_is_not_written_to(world: World, go: Path) -> None:
    attempt, supervisor = a_working_turn(world, go)
    world.data_root.rename(world.root / "aside")
    (world.data_root / "signals").mkdir(parents=True)
    (world.data_root / "host_id").write_text("another\n")
    go.touch()
    until(lambda: not processes_of(attempt.id), what="the agent's end")
    until(lambda: is_pausing(supervisor), what="a supervisor that waits")
    assert list((world.data_root / "signals").iterdir()) == []
    shutil.rmtree(world.data_root)
    (world.root / "aside").rename(world.data_root)
    assert_done(world, attempt)


def test_a_session_on_a_read_only_data_root_says_what_is_wrong(world: World) -> None:
    world.run("true")
    with read_only(world.data_root) as unmount:
        error = code_of(lambda: world.new_client().call("host.facts", FactsAsk()))
        assert error.code == "DISK_UNUSABLE" and error.hint, error.text
        unmount()
    assert world.client.call("host.facts", FactsAsk()).slots_used == 0


def test_a_turn_that_an_older_ledger_does_not_know_keeps_its_task_and_no_other(world: World, go: Path) -> None:
    world.run("true")
    world.client.close()
    until(lambda: not world.processes(), what="the end of the session")
    shutil.copytree(world.data_root, world.root / "copy", symlinks=True, ignore=shutil.ignore_patterns("bell"))
    world.client = world.new_client()
    attempt, supervisor = a_working_turn(world, go)
    world.data_root.rename(world.root / "aside")
    (world.root / "copy").rename(world.data_root)
    world.client = world.new_client()
    task_id = attempt.spec.task_id
    busy = world.lease(f"{task_id}-2-aaaaaa", f"{task_id}-2", task_id).busy
    assert busy is not None and attempt.id in busy and str(processes_of(attempt.id)[0]) in busy
    assert list(world.client.call("host.facts", FactsAsk(agents=True)).unknown_attempts) == [attempt.id]
    assert world.run("true")[1].end is not None
    go.touch()
    until(lambda: not is_alive(supervisor), what="its end")
    assert world.lease(f"{task_id}-2-aaaaaa", f"{task_id}-2", task_id).token is not None
    assert world.client.call("host.facts", FactsAsk(agents=True)).unknown_attempts == {}


@pytest.mark.parametrize("name", ["locks", "run", "signals"])
def test_a_directory_that_somebody_removed_below_a_root_in_use_is_made_again(world: World, go: Path, name: str) -> None:
    attempt = world.start("sh", "-c", WORK.format(go=go))
    wait_output(world, attempt, b"up")
    take_away(world.data_root / name)
    go.touch()
    end = world.wait(attempt).end
    assert end is not None and (end.outcome, end.error_code) == ("done", None)
    assert world.published(attempt, "work.txt") == "x"
    until((world.data_root / name).is_dir, what="the directory")


def test_the_files_of_a_turn_removed_while_it_runs_cost_nothing_but_its_output(world: World, go: Path) -> None:
    attempt = world.start("sh", "-c", WORK.format(go=go))
    wait_output(world, attempt, b"up")
    take_away(world.job(attempt))
    time.sleep(2.5)  # the session looks after supervisors once a second
    assert world.status(attempt).state == "launched"
    go.touch()
    end = world.wait(attempt).end
    assert end is not None and (end.outcome, end.reason, end.error_code) == ("unknown", "exit", None)
    assert "of its output are not kept" in end.evidence
    assert world.published(attempt, "work.txt") == "x"


@pytest.mark.parametrize("removed", ["job", "bell"])
def test_a_turn_whose_files_were_removed_can_be_cancelled(world: World, go: Path, removed: str) -> None:
    attempt = world.start("sh", "-c", "echo x > work.txt; " + WORK.format(go=go))
    wait_output(world, attempt, b"up")
    if removed == "job":
        take_away(world.job(attempt))
    else:
        (world.job(attempt) / "bell").unlink()
    world.cancel(attempt)
    end = world.wait(attempt).end
    assert end is not None and (end.outcome, end.reason, end.error_code) == ("cancelled", "cancel", None)
    assert world.published(attempt, "work.txt") == "x"


def test_a_mirror_removed_while_a_turn_runs_is_told_with_what_mends_it(world: World, go: Path) -> None:
    attempt = world.start("sh", "-c", WORK.format(go=go))
    wait_output(world, attempt, b"up")
    take_away(Path(world.layout.mirror(attempt.spec.project_id)))
    go.touch()
    end = world.wait(attempt).end
    assert end is not None and (end.outcome, end.error_code) == ("unknown", "PUBLISH_FAILED")
    assert f"shunter say {attempt.spec.task_id}" in (end.error_text or "")
    assert (world.workspace(attempt) / "work.txt").read_text() == "x\n"
