"""A damaged, newer, read-only or full place is told by its code, and nothing in it is overwritten (S10, F125)."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_disk import fill, small_disk

from shunter.host import ledger
from shunter.wire.errors import ShunterError

from .test_stopping import wait_output
from .world import World, code_of, is_alive, processes_of, until

Ruin = Callable[[Path], None]


def truncate_to(length: int) -> Ruin:
    return lambda path: os.truncate(path, length)


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def make_newer(path: Path) -> None:
    with sqlite3.connect(path) as ledger:
        ledger.execute("PRAGMA user_version = 99")
    ledger.close()


def make_foreign(path: Path) -> None:
    with sqlite3.connect(path) as ledger:
        ledger.execute("PRAGMA application_id = 7")
    ledger.close()


def close_sessions(world: World) -> None:
    """Also fold SQLite's side files in: with them, it mends much of what the tests here do to the ledger."""
    session = world.client.session()
    world.client.close()
    until(lambda: session.process.poll() is not None, what="the end of the session")
    ended = [attempt for attempt in world.attempts if Path(world.layout.signal(attempt.id, "exited")).exists()]
    publishers = [world.supervisor(attempt)["pid"] for attempt in ended]
    until(lambda: not [pid for pid in publishers if is_alive(pid)], what="the end of publishers")
    with sqlite3.connect(world.layout.ledger) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    ledger.close()
    for name in ("-wal", "-shm"):
        Path(world.layout.ledger + name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("ruin", "code"),
    [
        (truncate_to(0), "LEDGER_DAMAGED"),
        (truncate_to(50), "LEDGER_DAMAGED"),
        (truncate_to(3000), "LEDGER_DAMAGED"),
        (truncate_to(8192), "LEDGER_DAMAGED"),
        (fill_with_garbage, "LEDGER_DAMAGED"),
        (make_foreign, "LEDGER_DAMAGED"),
        (make_newer, "LEDGER_NEWER"),
        (Path.unlink, "LEDGER_DAMAGED"),
    ],
    ids=["empty", "50 bytes", "3000 bytes", "two pages", "garbage", "foreign", "newer", "missing"],
)
def test_a_ledger_that_is_not_ours_or_not_whole_is_left_alone(world: World, ruin: Ruin, code: str) -> None:
    attempt, _ = world.run("true")
    close_sessions(world)
    ledger = Path(world.layout.ledger)
    ruin(ledger)
    before = ledger.read_bytes() if ledger.exists() else b""
    error = code_of(lambda: world.new_client().call("attempt.status", attempt.ref))
    assert error.code == code
    assert world.layout.ledger in error.text and error.hint
    assert (ledger.read_bytes() if ledger.exists() else b"") == before


def test_a_ledger_that_was_begun_and_not_finished_is_begun_again(world: World) -> None:
    Path(world.layout.root).mkdir(parents=True)
    Path(world.layout.ledger).touch()
    _, status = world.run("true")
    assert status.end is not None


def test_a_ledger_damaged_under_a_running_turn_costs_no_file(world: World) -> None:
    attempt = world.start("sh", "-c", f"echo up; until [ -e {world.root}/go ]; do sleep 0.01; done; echo x > work.txt")
    wait_output(world, attempt, b"up")
    close_sessions(world)
    ledger = Path(world.layout.ledger)
    whole = ledger.read_bytes()
    fill_with_garbage(ledger)
    (world.root / "go").touch()
    until(lambda: not processes_of(attempt.id), what="the agent's end")
    until(Path(world.layout.signal(attempt.id, "exited")).exists, what=".exited")
    pid = world.supervisor(attempt)["pid"]
    until(lambda: not is_alive(pid), what="the publisher's end")
    ledger.write_bytes(whole)  # restored from a copy: the next session finishes what the publisher could not record
    end = world.wait(attempt).end
    assert end is not None and end.outcome == "done"
    assert world.published(attempt, "work.txt") == "x"


# --- a small disk ---------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    with small_disk(place, "24m"):
        yield place


@pytest.fixture
def disk_world(disk: Path, tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "world", data_root=disk / "data")
    yield world
    (disk / "ballast").unlink(missing_ok=True)
    world.close()


def test_a_full_disk_refuses_before_anything_is_stored(disk_world: World, disk: Path) -> None:
    world = disk_world
    world.run("true")
    attempt = world.prepare("true")
    empty = fill(disk)
    error = code_of(lambda: world.accept(attempt))
    assert error.code == "DISK_FULL", error.text
    assert world.status(attempt).state == "unknown"
    empty()
    world.accept(attempt)
    assert world.wait(attempt).end is not None


def test_a_disk_that_is_full_from_the_beginning(disk_world: World, disk: Path) -> None:
    (disk / "data" / "bin").mkdir(parents=True)
    transport = disk_world.client.transport
    transport.prepare()
    fill(disk)
    error = code_of(disk_world.client.session)
    assert error.code == "DISK_FULL", error.text


@pytest.mark.parametrize("left_kib", [500, 950, 1100, 1250, 1400])
def test_a_helper_that_found_no_room_to_unpack_starts_once_there_is_some(
    disk_world: World, disk: Path, left_kib: int
) -> None:
    (disk / "data" / "bin").mkdir(parents=True)
    disk_world.client.transport.prepare()
    empty = fill(disk, left_kib=left_kib)
    try:
        disk_world.client.session()
    except ShunterError as exc:
        assert exc.code == "DISK_FULL" and "None" not in exc.text and exc.hint, exc.text
    empty()
    assert disk_world.new_client().session().hello.host_id


def test_a_disk_without_room_for_the_hosts_id_is_named(disk_world: World, disk: Path) -> None:
    first = disk_world.client.session().hello.host_id
    (disk / "data" / "host_id").unlink()
    empty = fill(disk)
    error = code_of(disk_world.new_client().session)
    assert error.code == "DISK_FULL" and error.hint, error.text
    empty()
    assert disk_world.new_client().session().hello.host_id not in (first, "")
    assert [each.name for each in (disk / "data").glob("host_id*")] == ["host_id"]


def test_a_disk_that_fills_up_during_a_turn_delays_only_the_account_of_its_end(
    disk_world: World, disk: Path, tmp_path: Path
) -> None:
    """Neither the agent nor the time limit nor a cancel waits for room; the end is told once there is some."""
    world = disk_world
    go = tmp_path / "go"
    code = (
        "import os, sys, time\n"
        "print('up', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "for n in range(200_000): os.write(1, b'%09d\\n' % n)\n"
        f"open({str(tmp_path / 'through')!r}, 'w').close()\n"
        "time.sleep(600)\n"
    )
    attempt = world.start(sys.executable, "-I", "-S", "-c", code)
    wait_output(world, attempt, b"up")
    empty = fill(disk)
    go.touch()
    until((tmp_path / "through").exists, what="an agent that nothing blocks")
    world.cancel(attempt)
    until(lambda: not processes_of(attempt.id), what="the end of a cancelled tree")
    assert Path(f"/proc/{world.supervisor(attempt)['pid']}").exists()
    assert not Path(world.layout.signal(attempt.id, "exited")).exists()
    empty()
    end = world.wait(attempt).end
    assert end is not None
    assert (end.outcome, end.reason, end.stdout_bytes) == ("cancelled", "cancel", 2_000_003)
    data, gaps = world.read_log(attempt)
    assert data.startswith(b"up\n")
    assert len(data) + sum(length for _, length in gaps) == 2_000_003
    assert world.slots_used() == 0


def test_a_disk_that_is_read_only(disk_world: World, disk: Path) -> None:
    world = disk_world
    attempt, _ = world.run("true")
    close_sessions(world)
    before = Path(world.layout.ledger).read_bytes()
    remount = ["mount", "-o", "remount,ro", str(disk)]
    until(lambda: subprocess.run(remount, capture_output=True).returncode == 0, what="the last writer's end")
    try:
        error = code_of(lambda: world.new_client().call("attempt.status", attempt.ref))
        assert error.code == "DISK_UNUSABLE" and error.hint, error.text
        assert Path(world.layout.ledger).read_bytes() == before
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


def test_a_data_root_that_cannot_be_made(make_world: Callable[..., World], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    world = make_world("second", data_root=tmp_path / "file" / "data")
    error = code_of(world.client.session)
    assert error.code == "IO", error.text
    shutil.rmtree(tmp_path / "second", ignore_errors=True)


def first_layout(path: str) -> sqlite3.Connection:
    with sqlite3.connect(path) as old:
        old.executescript(ledger.SCHEMA)
        old.execute(f"PRAGMA application_id={ledger.APPLICATION_ID}")
        old.execute("PRAGMA user_version=1")
        old.execute("INSERT INTO task VALUES ('t1', 'p', 'a', NULL)")
    return old


def test_a_ledger_of_the_first_layout_gets_the_outbox_and_keeps_what_it_holds(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger.db")
    first_layout(path).close()
    for _ in range(2):
        opened = ledger.Ledger(path)
        assert opened.find_push("t1") is None
        assert opened.find_task("t1") is not None
        assert opened.rows("PRAGMA user_version")[0][0] == ledger.VERSION
        opened.close()


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "of the first layout"])
def test_a_ledger_that_found_no_room_opens_once_there_is_some(disk: Path, is_old: bool) -> None:
    """Whatever the room: it is whole, or DISK_FULL and to be opened later."""
    told = set()
    for left_kib in range(0, 128, 8):
        place = disk / str(left_kib)
        place.mkdir()
        path = str(place / "ledger.db")
        if is_old:
            with contextlib.closing(first_layout(path)) as old:
                old.execute("PRAGMA journal_mode=WAL")
        empty = fill(disk, left_kib=left_kib)
        try:
            ledger.Ledger(path).close()
            told.add("room")
        except ShunterError as exc:
            told.add(exc.code)
        empty()
        opened = ledger.Ledger(path)
        assert (opened.find_task("t1") is not None) == is_old
        assert opened.rows("PRAGMA integrity_check")[0][0] == "ok"
        opened.close()
    assert told == {"room", "DISK_FULL"}
