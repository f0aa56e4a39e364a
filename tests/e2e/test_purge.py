"""`host remove --purge`: wherever the data root lies, broken off and repeated, and what it must not take unasked."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from e2e_world import cmdline, eventually, kill
from origin_lab import Origin
from pool_world import text_of
from small_disk import small_disk
from ssh_lab import SSHD, LabHost, run

pytestmark = [
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here"),
    pytest.mark.timeout(180),
]
needs_own_users = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: accounts of their own")
PURGE = ("host", "remove", "one", "--purge", "--yes")


@pytest.fixture
def host(pool) -> LabHost:
    return pool.a_host("one")


def names(pool) -> list[str]:
    return [each["name"] for each in pool.entries()]


def purging(host: LabHost) -> list[int]:
    """What runs on the host, as its user, for a purge."""
    return [pid for pid in host.processes() if cmdline(pid).startswith(b"python3") and b"purge" in cmdline(pid)]


class TestPlaces:
    @needs_own_users
    def test_below_a_directory_of_somebody_elses_all_but_the_directory_goes(self, pool, host):
        root = pool.shared / "srv" / "shunter"
        root.mkdir(parents=True)
        shutil.chown(root, host.user)
        pool.add(host, "--data-root", str(root))
        told = text_of(pool.world.run(*PURGE))
        assert f"removed all in {root}; the empty directory stays: Permission denied" in told
        assert os.listdir(root) == [] and os.listdir(root.parent) == ["shunter"] and names(pool) == ["local"]

    @needs_own_users
    def test_on_a_disk_of_its_own_all_but_the_mount_point_goes(self, pool, host):
        root = pool.shared / "disk"
        with small_disk(root, "200m"):
            shutil.chown(root, host.user)
            pool.add(host, "--data-root", str(root))
            told = text_of(pool.world.run(*PURGE))
            assert f"removed all in {root}; the empty directory stays: " in told
            assert os.listdir(root) == [] and names(pool) == ["local"]


@pytest.fixture
def large(pool, host) -> Path:
    """A data root that takes a while to remove."""
    pool.add(host)
    root = pool.root_of(host)
    for number in range(300):
        place = root / "tasks" / "large" / str(number)
        place.mkdir(parents=True)
        for name in range(100):
            (place / str(name)).touch()
    if host.is_own_user:
        for path in (root / "tasks").rglob("*"):
            if path.is_dir():
                shutil.chown(path, host.user)
        shutil.chown(root / "tasks" / "large", host.user)
    return root


def remains(root: Path) -> list[Path]:
    return list(root.parent.glob(f"{root.name}.removing-*"))


class TestBrokenOff:
    @needs_own_users
    def test_one_whose_helper_was_killed_is_finished_by_the_same_command(self, pool, host, large):
        removing = pool.world.start(*PURGE, "--discard")
        eventually(lambda: remains(large) and purging(host), every_s=0.001)
        for pid in purging(host):
            kill(pid)
        out, err = removing.communicate(timeout=60)
        assert removing.returncode == 69, (out, err)
        assert remains(large) and names(pool) == ["local", "one"]
        assert b"host remove one --purge" in pool.world.run("host", "check", "one", status=69).stdout
        told = text_of(pool.world.run(*PURGE))
        assert f"left of an earlier purge on one: {large}.removing-" in told and f"removed {large}" in told
        assert not remains(large) and not large.exists() and names(pool) == ["local"]

    def test_ctrl_c_says_that_the_host_goes_on_and_how_to_finish_it(self, pool, large):
        removing = pool.world.start(*PURGE, "--discard")
        eventually(lambda: remains(large), every_s=0.001)
        removing.send_signal(signal.SIGINT)
        _, err = removing.communicate(timeout=60)
        assert removing.returncode == 130
        assert b"INTERRUPTED" in err and b"goes on there" in err and b"the same command again" in err
        eventually(lambda: not remains(large))
        assert not large.exists() and names(pool) == ["local", "one"]
        assert "nothing is there" in text_of(pool.world.run(*PURGE))
        assert names(pool) == ["local"]

    def test_a_data_root_that_is_gone_or_empty_is_told_and_the_entry_goes(self, pool, host):
        pool.add(host)
        for path in pool.root_of(host).iterdir():
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        told = text_of(pool.world.run(*PURGE))
        assert f"{pool.root_of(host)} on one: nothing is there" in told and "nothing of shunter's was in" in told
        assert pool.root_of(host).exists() and names(pool) == ["local"]


@pytest.fixture
def origin(pool, host) -> Origin:
    """A repository by its path, on the host's account."""
    (pool.world.home / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    made = Origin(pool.world, host.home / "origin.git")
    if host.is_own_user:
        run("chown", "-R", host.user, str(made.bare))
    pool.world.git("remote", "add", "origin", str(made.bare))
    pool.add(host, "--tag", "origin:file")
    pool.without_local()
    return made


class TestPushes:
    def undelivered(self, pool, origin) -> str:
        """A task whose branch a hook of origin refuses."""
        origin.hook("cat > /dev/null; exit 1")
        task = pool.world.submit("cat > work.txt; git add work.txt; git commit -qm work", "--publish", "push")
        pool.world.wait(task, status=0)
        eventually(lambda: pool.world.json("status", task)["push"]["state"] == "refused")
        return task

    def test_what_is_not_on_origin_is_listed_and_given_up_with_discard_only(self, pool, host, origin):
        task = self.undelivered(pool, origin)
        told = text_of(pool.world.run(*PURGE, status=64))
        assert f"not on origin: {task}" in told and "RESULT_UNDELIVERED" in told
        assert f"branch shunter/{task} is not on {origin.bare} yet: PUBLISH_REFUSED" in told
        assert f"shunter publish {task} --retry" in told
        assert "not on origin" in pool.world.out("list") and names(pool) == ["local", "one"]
        told = text_of(pool.world.run(*PURGE, "--discard"))
        assert f"given up: {task} (branch shunter/{task}" in told
        assert pool.world.json("status", task)["push"]["state"] == "dropped"
        assert "not on origin" not in pool.world.out("list") and not pool.root_of(host).exists()

    def test_after_a_retry_that_went_through_nothing_is_owed(self, pool, origin):
        task = self.undelivered(pool, origin)
        origin.hook("cat > /dev/null")
        pool.world.run("publish", task, "--retry")
        told = text_of(pool.world.run(*PURGE))
        assert "not on origin" not in told and "given up" not in told and "cannot be pushed" not in told
        assert pool.world.json("status", task)["push"]["state"] == "pushed"

    def test_a_host_that_only_leaves_the_pool_keeps_what_it_owes_and_that_is_told(self, pool, host, origin):
        task = self.undelivered(pool, origin)
        told = text_of(pool.world.run("host", "remove", "one"))
        assert f"cannot be pushed from one any more: {task} (branch shunter/{task}" in told
        assert pool.world.json("status", task)["push"]["state"] == "refused"
        origin.hook("cat > /dev/null")
        pool.add(host, "--tag", "origin:file")
        pool.world.run("publish", task, "--retry")
        assert f"shunter/{task}" in origin.branches()


class TestWorkspaces:
    def test_what_somebody_changed_there_after_the_turn_is_listed(self, pool, host):
        pool.add(host)
        pool.without_local()
        task = pool.world.submit("echo x > x.txt")
        pool.world.wait(task, status=0)
        (pool.root_of(host) / "tasks" / task / "workspace" / "x.txt").write_text("edited\n")
        told = text_of(pool.world.run(*PURGE, status=64))
        assert f"with something in the workspace alone: {task}" in told and "RESULT_UNDELIVERED" in told
        told = text_of(pool.world.run("close", task, status=64))
        assert "only in the workspace: 'x.txt', changed after the last turn" in told
        assert "removed" in text_of(pool.world.run(*PURGE, "--discard"))
