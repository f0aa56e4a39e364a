"""One account and data root that serves several homes, or that one pool has under several names."""

from __future__ import annotations

import shlex
import shutil
import signal
import time

import pytest
from e2e_world import World, eventually, kill, quoted
from gone import take_away
from pool_world import Pool, text_of
from ssh_lab import SSHD

pytestmark = [
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def pool(tmp_path):
    (tmp_path / "pool").mkdir()
    made = Pool(tmp_path / "pool")
    yield made
    made.close()


@pytest.fixture
def other(tmp_path):
    """Another operator's home."""
    (tmp_path / "other").mkdir()
    made = World(tmp_path / "other")
    yield made
    made.close()


def join(pool, world, host, *words, status=0):
    """`host add` of the lab's host in that home, with one data root for all."""
    place = () if host.is_own_user else ("--data-root", str(pool.root_of(host)))
    command = shlex.join(pool.lab.ssh_command)
    return text_of(world.run("host", "add", host.name, "--ssh-command", command, *place, *words, status=status))


def introduce_as(pool, host, name: str) -> None:
    """A second name of ssh for the same account."""
    block = pool.lab.config.read_text().split(f"Host {host.name}\n")[1].split("Host ")[0]
    with pool.lab.config.open("a") as config:
        config.write(f"Host {name}\n{block}")


def call_too(pool, host, name: str, *, first: bool) -> None:
    """Write an entry of that name by hand, beside that of the host, which `host add` would refuse."""
    introduce_as(pool, host, name)
    text = pool.world.config.read_text()
    head, begin, entry = text.rpartition("[[hosts]]")
    own = entry.replace(f'name = "{host.name}"', f'name = "{name}"').replace(f'ssh = "{host.name}"', f'ssh = "{name}"')
    blocks = [begin + own, begin + entry] if first else [begin + entry, begin + own]
    pool.world.config.write_text(head + "\n".join(blocks))


def end_unheard(pool, world, host, *words) -> str:
    """A task whose turn ended on its host while nobody of its home was at work."""
    go = pool.shared / "go"
    task = world.submit(f"while [ ! -e {quoted(str(go))} ]; do sleep 0.05; done; echo x > x.txt", *words)
    eventually(lambda: world.json("status", task)["phrase"] == "running")
    for pid in world.dispatcher_pids():
        kill(pid, signal.SIGKILL)
    running = text_of(pool.world.run("host", "remove", "mini", "--purge", "--yes", "--discard", status=64))
    assert "TASK_BUSY" in running
    go.touch()
    eventually(lambda: pool.ledger(host, f"SELECT 1 FROM attempt WHERE job_id = '{task}-1' AND state = 'ended'"))
    return task


class TestPurging:
    def test_what_another_home_has_there_is_kept(self, pool, other):
        host = pool.a_host("mini")
        join(pool, pool.world, host)
        join(pool, other, host)
        task = end_unheard(pool, other, host, "--host", "mini")
        told = text_of(pool.world.run("host", "remove", "mini", "--purge", "--yes", status=64))
        assert (
            "RESULT_UNDELIVERED" in told and f"{task} (another home's)" in told and f"of another home: {task}" in told
        )
        assert [each["name"] for each in pool.entries()] == ["local", "mini"]
        (found,) = other.wait(task, status=0)
        assert found["phrase"] == "done" and other.git("show", f"{found['ref']}:x.txt") == "x"
        # Whether it is at the other's home nobody here knows, until it is closed.
        assert task in text_of(pool.world.run("host", "remove", "mini", "--purge", "--yes", status=64))
        other.run("close", task)
        assert "removed" in text_of(pool.world.run("host", "remove", "mini", "--purge", "--yes"))

    def test_what_this_home_has_there_under_another_name_is_kept(self, pool):
        host = pool.a_host("chain")
        join(pool, pool.world, host)
        call_too(pool, host, "mini", first=False)
        task = end_unheard(pool, pool.world, host, "--host", "chain")
        told = text_of(pool.world.run("host", "remove", "mini", "--purge", "--yes", status=64))
        assert f"{task} (this home's, as chain)" in told and f"of this home as chain: {task}" in told
        assert "what chain runs with" in told and f"shunter fetch {task}" in told
        (found,) = pool.world.wait(task, status=0)
        assert found["phrase"] == "done"
        pool.world.run("host", "remove", "mini")
        assert "removed" in text_of(pool.world.run("host", "remove", "chain", "--purge", "--yes"))

    def test_under_a_name_that_has_gone_only_what_is_not_at_home_counts(self, pool):
        host = pool.a_host("mini")
        join(pool, pool.world, host, "--name", "former")
        (found,) = pool.world.wait(pool.world.submit("echo x > x.txt", "--host", "former"), status=0)
        pool.world.run("host", "remove", "former")
        join(pool, pool.world, host)
        told = text_of(pool.world.run("host", "remove", "mini", "--purge", "--yes"))
        assert f"of this home as former: {found['id']}" in told and "removed" in told

    def test_what_was_given_up_and_ended_after_all_is_kept(self, pool):
        host = pool.a_host("mini")
        join(pool, pool.world, host)
        go = pool.shared / "go"
        task = pool.world.submit(
            f"while [ ! -e {quoted(str(go))} ]; do sleep 0.05; done; echo x > x.txt", "--host", "mini"
        )
        eventually(lambda: pool.world.json("status", task)["phrase"] == "running")
        if not host.is_own_user:
            host.kill_master()
        host.vanish()
        pool.world.run("reconcile", status=None)
        eventually(lambda: pool.world.json("status", task)["phrase"] == "uncertain", limit_s=60)
        pool.world.run("cancel", task, "--force", "mini")
        go.touch()
        eventually(lambda: pool.ledger(host, "SELECT 1 FROM attempt WHERE state = 'ended'"))
        host.come_back()
        told = text_of(pool.world.run("host", "remove", "mini", "--purge", "--yes", status=64))
        assert f"{task} (not fetched)" in told
        pool.world.run("host", "remove", "mini", "--purge", "--yes", "--discard")
        assert not pool.root_of(host).exists()


class TestRoom:
    def test_what_another_home_runs_there_takes_its_slots_here_too(self, pool, other):
        host = pool.a_host("mini")
        join(pool, pool.world, host, "--slots", "2")
        join(pool, other, host, "--slots", "2")
        world, go = pool.world, pool.shared / "go"
        script = f"while [ ! -e {quoted(str(go))} ]; do sleep 0.05; done"
        theirs = [other.submit(script, "--host", "mini") for _ in range(2)]
        eventually(lambda: all(other.json("status", each)["phrase"] == "running" for each in theirs))
        shown = pool.hosts("--refresh")["mini"]
        assert (shown["state"], shown["slots_used"], shown["slots"]) == ("full", 2, 2)
        told = text_of(world.run("submit", "--no-wait", "--host", "mini", "-a", "exec:true", "x", status=75))
        assert "CAPACITY_BUSY" in told and "2 of 2 taken" in told and world.json("list") == []
        task = world.submit("true", "--host", "mini")
        eventually(lambda: "0 of 2 slots free" in world.out("status", task))
        time.sleep(1)  # in which it would have been claimed
        detail = world.json("status", task)
        assert detail["attempts"] == [] and [each["code"] for each in detail["rejected"]] == ["PINNED", "NO_SLOT"]
        go.touch()
        world.wait(task, status=0)
        other.wait(*theirs, status=0)
        assert pool.hosts("--refresh")["mini"]["slots_used"] == 0
        world.run("submit", "--no-wait", "--wait", "--host", "mini", "-a", "exec:true", "x")
        # Of attempts of the other home both hosts tell both dispatchers, which is nothing to write about.
        assert world.log() == other.log() == ""


class TestTwoNames:
    def test_a_second_name_is_not_taken_in(self, pool):
        host = pool.a_host("mini")
        join(pool, pool.world, host)
        before = pool.world.config.read_text()
        introduce_as(pool, host, "tun")
        command = shlex.join(pool.lab.ssh_command)
        place = () if host.is_own_user else ("--data-root", str(pool.root_of(host)))
        told = text_of(pool.world.run("host", "add", "tun", "--ssh-command", command, *place, status=64))
        assert "HOST_DUPLICATE" in told and "as mini" in told and "--data-root" in told
        assert pool.world.config.read_text() == before and set(pool.hosts()) == {"local", "mini"}
        elsewhere = str(pool.root_of(host)) + "-too"
        told = text_of(pool.world.run("host", "add", "tun", "--ssh-command", command, "--data-root", elsewhere))
        assert "tun is ready" in told
        pool.world.run("host", "remove", "tun", "--purge", "--yes")

    def test_the_first_of_the_configuration_keeps_the_machine_and_everybody_says_so(self, pool):
        host = pool.a_host("alpha")
        join(pool, pool.world, host, "--slots", "2")
        call_too(pool, host, "tun", first=True)
        world = pool.world
        shown = pool.hosts("--refresh")
        assert (shown["tun"]["state"], shown["tun"]["slots"]) == ("ready", 2)
        assert (shown["alpha"]["state"], shown["alpha"]["slots"]) == ("duplicate", 0)
        assert "as tun" in shown["alpha"]["reason"] and "shunter host remove alpha" in shown["alpha"]["hint"]
        told = text_of(world.run("host", "check", "alpha", status=69))
        assert "FAILED  machine" in told and "as tun" in told
        assert "FAILED" not in text_of(world.run("host", "check", "tun"))
        for words in ((), ("--no-wait",)):
            told = text_of(world.run("submit", "-a", "exec:true", "x", "--host", "alpha", *words, status=64))
            assert "HOST_DUPLICATE" in told and "--host tun" in told
        (found,) = world.wait(world.submit("echo x > x.txt", "--host", "tun"), status=0)
        assert found["host"] == "tun"

    def test_a_task_that_waits_for_a_name_that_lost_its_machine_is_told_of(self, pool):
        host = pool.a_host("alpha")
        join(pool, pool.world, host)
        world = pool.world
        world.run("host", "drain", "alpha")
        task = world.submit("true", "--host", "alpha")
        call_too(pool, host, "tun", first=True)
        pool.hosts("--refresh")
        assert "same machine as tun" in world.out("status", task)
        told = text_of(world.run("wait", task, "--timeout", "1s", status=70))
        assert "waits for host alpha alone, which is the same machine as tun" in told


class TestPinned:
    def test_a_host_that_tasks_wait_for_is_not_removed_and_one_that_has_gone_is_told_of(self, pool):
        join(pool, pool.world, pool.a_host("mini"))
        world = pool.world
        world.run("host", "drain", "mini")
        task = world.submit("true", "--host", "mini")
        told = text_of(world.run("host", "remove", "mini", status=64))
        assert "TASK_BUSY" in told and f"shunter cancel {task}" in told
        with_it = world.config.read_text()
        world.config.write_text(with_it.rpartition("[[hosts]]")[0])
        assert "mini:        it is not in the pool" in world.out("status", task)
        told = text_of(world.run("wait", task, "--timeout", "1s", status=70))
        assert "waits for host mini alone, which is not in the pool" in told
        world.config.write_text(with_it)
        world.run("cancel", task)
        world.run("host", "remove", "mini")


class TestDataRoots:
    def running(self, pool, host) -> str:
        """A task that ends with a file `go`, and whose dispatcher is dead."""
        go = pool.shared / "go"
        go.unlink(missing_ok=True)
        script = f"while [ ! -e {quoted(str(go))} ]; do sleep 0.05; done; echo x > x.txt"
        task = pool.world.submit(script, "--host", host.name)
        eventually(lambda: pool.world.json("status", task)["phrase"] == "running")
        for pid in pool.world.dispatcher_pids():
            kill(pid, signal.SIGKILL)
        return task

    def test_one_that_has_gone_with_open_turns_is_not_made_anew_unasked(self, pool):
        host = pool.a_host("mini")
        join(pool, pool.world, host)
        world, root = pool.world, pool.root_of(host)
        task = self.running(pool, host)
        aside = root.with_name("aside")
        root.rename(aside)
        shown = pool.hosts("--refresh")["mini"]
        assert shown["state"] == "unknown" and "not there any more" in shown["reason"], shown
        assert "1 turn of yours is open there" in shown["reason"] and "--new-data-root" in shown["hint"]
        told = text_of(world.run("logs", task, status=69))
        assert "DATA_ROOT_MISSING" in told and "put it back" in told and "--new-data-root" in told
        told = text_of(world.run("host", "setup", "mini", status=69))
        assert "FAILED  data root" in told and "--new-data-root" in told and not root.exists()
        aside.rename(root)
        assert "mini is ready" in text_of(world.run("host", "setup", "mini"))
        (pool.shared / "go").touch()
        (found,) = world.wait(task, status=0)
        assert found["phrase"] == "done"

    @pytest.mark.parametrize(
        "words", [("host", "setup", "mini"), ("host", "check", "mini"), ("hosts", "--refresh"), ("reconcile",)]
    )
    def test_whoever_waits_for_one_is_told_and_once_it_is_mended_goes_on_at_once(self, pool, words):
        host = pool.a_host("mini")
        join(pool, pool.world, host)
        pool.without_local()  # of a single host nothing is asked before it is tried
        world, root = pool.world, pool.root_of(host)
        aside = root.rename(root.with_name("aside"))
        with (world.root / "told").open("wb") as told:
            child = world.start("submit", "--wait", "-a", "exec:true", "x", stderr=told)
            (task,) = eventually(lambda: world.json("list", status=None))
            words_told = eventually((world.root / "told").read_text)
            assert "waits, mini: DATA_ROOT_MISSING" in words_told and "put it back" in words_told
            again = text_of(world.run("wait", task["id"], "--timeout", "1s", status=70))
            assert "waits, mini: DATA_ROOT_MISSING" in again
            assert "DATA_ROOT_MISSING" in world.out("status", task["id"])
            later = f"UPDATE queue SET not_before = {time.time() + 10_000} WHERE owner IS NULL RETURNING turn_id"
            eventually(lambda: world.store(later))
            aside.rename(root)
            world.run(*words)
            assert child.wait(timeout=60) == 0
            assert (world.root / "told").read_text() == words_told

    def test_on_the_operators_word_it_is_made_anew_and_its_turns_are_lost(self, pool):
        host = pool.a_host("mini")
        join(pool, pool.world, host)
        world, root = pool.world, pool.root_of(host)
        task = self.running(pool, host)
        root.rename(root.with_name("aside"))
        assert "mini is ready" in text_of(world.run("host", "setup", "mini", "--new-data-root"))
        (found,) = world.wait(task, status=70)
        assert found["phrase"] == "lost"
        (pool.shared / "go").touch()
        take_away(root)
        assert "--new-data-root" not in pool.hosts("--refresh")["mini"]["hint"]
        assert "mini is ready" in text_of(world.run("host", "setup", "mini"))
        assert pool.hosts("--refresh")["mini"]["state"] == "ready"
