"""Removing a data root: as a whole or in place, broken off at any step, with helpers that are there or come."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from read_only import read_only

from shunter.host.purge import find_asides, purge_root
from shunter.wire.errors import ShunterError
from shunter.wire.messages import FactsAsk, Purged

from .world import HELPER_PYTHON, World, until

SOURCES = str(Path(__file__).parents[3] / "src")
# The purge of a data root that gets the signal argv[3] before its step argv[2]; steps are what changes a directory.
BREAKING = """
import os, sys
sys.path.insert(0, sys.argv[4])
from shunter.host import purge
left = [int(sys.argv[2])]
def counted(act):
    def step(*words, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), int(sys.argv[3]))
        return act(*words, **options)
    return step
for name in ("mkdir", "rename", "unlink", "rmdir"):
    setattr(os, name, counted(getattr(os, name)))
purge.purge_root(sys.argv[1])
"""


def breaking(root: Path, step: int, number: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([HELPER_PYTHON, "-c", BREAKING, str(root), str(step), str(int(number)), SOURCES])


def a_data_root(root: Path) -> None:
    """As one that a task was on, with something nested and something that is closed."""
    for name in ("bin", "jobs/a-1-x", "lib", "locks", "mirrors/p.git/objects", "run", "signals", "tasks/t/shut/in"):
        (root / name).mkdir(parents=True)
    for name in ("ledger.db", "ledger.db-wal", "host_id", "jobs/a-1-x/stdout", "tasks/t/shut/in/x"):
        (root / name).touch()
    (root / "tasks/t/shut").chmod(0)


def as_a_whole(root: Path) -> None:
    """Nothing is in the way."""


def beside_others(root: Path) -> None:
    (root / "thesis.tex").touch()


@pytest.mark.parametrize("prepare", [as_a_whole, beside_others])
def test_a_purge_that_is_killed_at_any_step_is_finished_by_the_next_one(
    tmp_path: Path, prepare: Callable[[Path], None]
) -> None:
    for step in itertools.count(1):
        root = tmp_path / str(step) / "root"
        a_data_root(root)
        prepare(root)
        others = {path.name for path in root.iterdir()} & {"thesis.tex"}
        was_killed = breaking(root, step, signal.SIGKILL).wait(timeout=60) == -signal.SIGKILL
        assert (root / "ledger.db").exists() or not (root / "ledger.db-wal").exists() or find_asides(str(root)), step
        done = purge_root(str(root))
        assert done.found == was_killed or not was_killed, step
        assert (done.left, done.stays) == ((), None), step
        assert {path.name for path in root.parent.rglob("*")} - {"root"} == others, step
        assert root.exists() == bool(others), step
        if not was_killed:
            assert step > 20
            break


def test_no_helper_makes_a_ledger_in_a_data_root_that_is_just_removed_in_place(world: World) -> None:
    world.run("true")
    world.client.call("host.facts", FactsAsk())
    (world.data_root / "thesis.tex").touch()
    # mkdir twice, then ledger and what comes with it: the jobs are still there, and nothing is removed yet.
    purge = breaking(world.data_root, 6, signal.SIGSTOP)
    until(lambda: os.waitid(os.P_PID, purge.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT), what="the stop")
    assert not (world.data_root / "ledger.db").exists() and (world.data_root / "jobs").exists()
    for client in (world.client, world.new_client()):
        with pytest.raises(ShunterError):
            client.call("host.facts", FactsAsk())
        assert not (world.data_root / "ledger.db").exists()
    with pytest.raises(ShunterError) as refused:
        world.new_client().session()
    assert refused.value.code == "DATA_ROOT_MISSING" and "is being removed" in refused.value.text
    purge.send_signal(signal.SIGCONT)
    assert purge.wait(timeout=60) == 0
    assert os.listdir(world.data_root) == ["thesis.tex"]
    with pytest.raises(ShunterError):
        world.client.call("host.facts", FactsAsk())
    assert os.listdir(world.data_root) == ["thesis.tex"]


def test_what_was_moved_aside_and_never_removed_keeps_nobody_from_a_new_data_root(world: World) -> None:
    world.client.call("host.facts", FactsAsk())
    (world.data_root / "thesis.tex").touch()
    purge = breaking(world.data_root, 20, signal.SIGKILL)
    assert purge.wait(timeout=60) == -signal.SIGKILL and find_asides(str(world.data_root))
    assert world.new_client().session().hello.data_root == str(world.data_root)


def test_a_disk_that_became_read_only_is_told_as_such(tmp_path: Path) -> None:
    root = tmp_path / "root"
    a_data_root(root)
    with read_only(tmp_path / "root"), pytest.raises(OSError, match="Read-only") as found:
        purge_root(str(root))
    assert found.value.errno == errno.EROFS
    assert purge_root(str(root)).left == ()


def test_what_is_somebody_elses_directory_is_no_data_root(tmp_path: Path) -> None:
    for name in ("bin", "lib", "tasks"):
        (tmp_path / "home" / name).mkdir(parents=True)
    with pytest.raises(ShunterError, match="no data root"):
        purge_root(str(tmp_path / "home"))
    assert sorted(os.listdir(tmp_path / "home")) == ["bin", "lib", "tasks"]


def test_what_cannot_be_removed_is_told_and_the_rest_goes(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a mount needs root")
    root, kept = tmp_path / "root", tmp_path / "kept"
    a_data_root(root)
    (root / "tasks/t/mounted").mkdir()
    kept.mkdir()
    (kept / "file").touch()
    subprocess.run(["mount", "--bind", kept, root / "tasks/t/mounted"], check=True)
    try:
        done = purge_root(str(root))
    finally:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if str(tmp_path) in line.split()[4]:
                subprocess.run(["umount", "-l", line.split()[4]], check=True)
    assert len(done.left) == 1 and "busy" in done.left[0]
    assert (kept / "file").exists() and not root.exists()
    assert purge_root(str(root)) == Purged(str(root), found=True, has_others=False, stays=None, left=())
    assert purge_root(str(root)) == Purged(str(root), found=False, has_others=False, stays=None, left=())
    assert not list(tmp_path.glob("root*"))
