"""A data root or a home as it was some time ago: nothing is lost, run twice or passed over in silence."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from e2e_world import World, eventually, kill
from ssh_lab import SSHD

from shunter.dispatch.former import RECENT_S


def leave_hosts(world: World) -> None:
    """Until nobody has the data root open."""
    eventually(lambda: not (world.dispatcher_pids() or world.helper_pids() or world.supervisor_pids()))


def two_parts(world: World) -> str:
    """A message that is written down in two parts, the second once somebody says so."""
    return (
        f'cat >> log.txt; touch "{world.marks}/half"; until [ -e "{world.marks}/go" ]; do sleep 0.02; done; date > end'
    )


def take_copy(world: World, place: Path) -> None:
    """Without what no copy can hold: ears of living processes."""
    ears = shutil.ignore_patterns("*.bell", "*.ends", "bell", "wake")
    shutil.copytree(place, world.root / "copy", symlinks=True, ignore=ears)


def put_back(world: World, place: Path) -> None:
    place.rename(world.root / "newer")
    (world.root / "copy").rename(place)


def result_ref(world: World, task: str) -> tuple[str, str]:
    ref = world.json("result", task)["ref"]
    return ref, world.git("rev-parse", ref)


def contains(world: World, ref: str, oid: str) -> bool:
    return oid in world.git("rev-list", ref).splitlines()


class TestAnOlderCopyOfTheDataRoot:
    def task_half_done_in_the_copy(self, world: World) -> str:
        """It is done and at home; the copy, put back, is of before."""
        task = world.submit(two_parts(world), prompt="first;")
        eventually((world.marks / "half").exists)
        take_copy(world, world.data)
        (world.marks / "go").touch()
        world.wait(task, status=0)
        leave_hosts(world)
        put_back(world, world.data)
        return task

    def test_a_follow_up_goes_on_from_the_result_that_home_has(self, world):
        task = self.task_half_done_in_the_copy(world)
        ref, delivered = result_ref(world, task)
        world.run("reconcile")
        world.run("say", task, "second;", "--wait")
        assert contains(world, ref, delivered)
        assert world.git("show", f"{ref}:log.txt") == "first;second;"
        told = world.out("result", task)
        assert "did not know" in told and delivered[:12] in told

    def test_the_result_waits_for_a_checkout_that_is_gone(self, world):
        task = self.task_half_done_in_the_copy(world)
        aside = world.repo.rename(world.root / "aside")
        world.run("say", task, "second;", cwd=world.root)
        eventually(lambda: "CHECKOUT_MISSING" in world.out("status", task, cwd=world.root))
        told = world.run("wait", task, "--timeout", "1s", status=70, cwd=world.root).stderr.decode()
        assert "CHECKOUT_MISSING: what it begins with is in" in told
        aside.rename(world.repo)
        world.run("reconcile")
        (found,) = world.wait(task, status=0)
        assert world.git("show", f"{found['ref']}:log.txt") == "first;second;"

    def test_a_data_root_made_anew_gets_the_result_from_home(self, world):
        task = world.submit("cat >> log.txt", prompt="first;")
        world.wait(task, status=0)
        ref, delivered = result_ref(world, task)
        leave_hosts(world)
        world.data.rename(world.root / "newer")
        world.run("say", task, "second;", "--wait")
        assert contains(world, ref, delivered)
        assert world.git("show", f"{ref}:log.txt") == "first;second;"

    def test_nobody_works_beside_an_agent_that_the_older_ledger_does_not_know(self, world):
        world.wait(world.submit("true"))
        leave_hosts(world)
        take_copy(world, world.data)
        task = world.submit(two_parts(world), prompt="first;")
        eventually((world.marks / "half").exists)
        attempt = world.json("status", task)["turn"]["attempt_id"]
        for pid in (*world.dispatcher_pids(), *world.helper_pids()):
            kill(pid)
        eventually(lambda: not world.helper_pids())
        put_back(world, world.data)
        world.run("reconcile")
        eventually(lambda: world.json("status", task)["phrase"] == "lost")
        assert "unfit" in world.out("hosts", "--refresh") and attempt in world.out("hosts")
        assert attempt in world.out("host", "check", "local", status=None)
        world.run("say", task, "second;")
        eventually(lambda: attempt in world.out("status", task))
        assert world.json("status", task)["phrase"] == "waiting"
        (world.marks / "go").touch()
        assert world.wait(task)[0]["turn"]["number"] == 2
        assert attempt not in world.out("hosts", "--refresh")


def leave_home(world: World) -> None:
    for pid in world.dispatcher_pids():
        kill(pid)
    eventually(lambda: not (world.dispatcher_pids() or world.helper_pids()))


class TestAnOlderCopyOfHomesState:
    def waits_in_the_copy(self, world: World, script: str) -> str:
        """A task that waits in the copy and runs by now."""
        world.run("host", "drain", "local")
        task = world.submit(f'echo x >> "{world.marks}/launches"; {script}')
        leave_home(world)
        take_copy(world, world.state)
        world.run("host", "enable", "local")
        eventually(world.launches)
        return task

    def test_a_turn_that_has_ended_since_comes_home_and_runs_once(self, world):
        task = self.waits_in_the_copy(world, "date > new.txt")
        world.wait(task, status=0)
        before = result_ref(world, task)
        leave_home(world)
        put_back(world, world.state)
        world.run("host", "enable", "local")
        assert world.wait(task, status=0)[0]["phrase"] == "done"
        assert result_ref(world, task) == before
        assert "had accepted it before" in world.out("status", task)
        assert world.launches() == 1
        world.run("close", task)
        world.assert_nothing_left_over()

    def test_a_turn_that_still_runs_is_followed_and_can_be_cancelled(self, world):
        task = self.waits_in_the_copy(world, "sleep 100")
        leave_home(world)
        put_back(world, world.state)
        world.run("host", "enable", "local")
        eventually(lambda: world.json("status", task)["phrase"] == "running")
        world.run("cancel", task)
        assert world.wait(task)[0]["phrase"] == "cancelled"
        assert world.launches() == 1
        eventually(lambda: not world.tagged_processes())

    def said_since_the_copy(self, world: World) -> tuple[str, str]:
        task = world.submit("cat >> log.txt", prompt="first;")
        world.wait(task, status=0)
        leave_home(world)
        take_copy(world, world.state)
        world.run("say", task, "second;", "--wait")
        newest = result_ref(world, task)[1]
        leave_home(world)
        put_back(world, world.state)
        return task, newest

    def test_what_the_host_published_since_is_fetched_and_then_the_task_closes(self, world):
        task, newest = self.said_since_the_copy(world)
        assert "RESULT_UNDELIVERED" in world.run("close", task, status=None).stderr.decode()
        told = world.run("fetch", task).stderr.decode()
        assert f"published {newest[:12]} since" in told
        assert result_ref(world, task)[1] == newest
        world.run("close", task)

    def test_a_branch_that_a_fetch_moves_back_is_kept(self, world):
        """Neither home nor host know of what the branch names."""
        task = world.submit("date > new.txt")
        world.wait(task, status=0)
        ref, oid = result_ref(world, task)
        newer = world.git("commit-tree", "-p", oid, "-m", "newer", f"{oid}^{{tree}}")
        world.git("update-ref", ref, newer)
        assert newer[:12] in world.run("fetch", task).stderr.decode()
        (kept,) = world.json("fetch", task, "--kept")["kept_refs"]
        assert world.git("rev-parse", ref, kept).split() == [oid, newer]

    def test_a_turn_that_was_closed_since_is_done_and_closes_again(self, world):
        task = self.waits_in_the_copy(world, "date > new.txt")
        world.wait(task, status=0)
        before = result_ref(world, task)
        world.run("close", task)
        leave_home(world)
        put_back(world, world.state)
        world.run("host", "enable", "local")
        assert world.wait(task, status=0)[0]["phrase"] == "done"
        assert result_ref(world, task) == before and world.launches() == 1
        world.run("close", task)

    def test_the_same_message_again_gives_its_result(self, world):
        task, newest = self.said_since_the_copy(world)
        world.run("say", task, "second;", "--wait")
        ref, oid = result_ref(world, task)
        assert oid == newest and world.git("show", f"{ref}:log.txt") == "first;second;"

    def test_another_message_is_refused_with_what_helps(self, world):
        task, newest = self.said_since_the_copy(world)
        world.run("say", task, "third;", "--wait", status=None)
        told = world.out("result", task)
        assert "ATTEMPT_CONFLICT" in told and f"shunter say {task}" in told
        assert newest[:12] in world.run("fetch", task).stderr.decode()
        assert result_ref(world, task)[1] == newest
        world.run("say", task, "third;", "--wait")
        assert world.git("show", f"{result_ref(world, task)[0]}:log.txt") == "first;second;third;"


@pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here")
class TestAnOlderCopyOfHomesStateAndTwoHosts:
    def waits_for_both(self, pool):
        """Both hosts drained, a task that waits, and nobody at home."""
        hosts = [pool.a_host(name) for name in ("alpha", "beta")]
        for host in hosts:
            pool.add(host, status=0)
            pool.world.run("host", "drain", host.name)
        pool.without_local()
        task = pool.world.submit("date > new.txt")
        leave_home(pool.world)
        return hosts, task

    def test_what_ran_on_one_host_does_not_go_to_another(self, pool):
        world, hosts, task = pool.world, *self.waits_for_both(pool)
        take_copy(world, world.state)
        world.run("host", "enable", "beta")
        world.wait(task, status=0)
        leave_home(world)
        put_back(world, world.state)
        time.sleep(RECENT_S)
        for host in hosts:  # alpha is first, and would have the turn
            world.run("host", "enable", host.name)
        assert [each["turn"]["host"] for each in world.wait(task, status=0)] == ["beta"]
        assert pool.ledger(hosts[0], "SELECT * FROM attempt") == []

    def test_a_host_that_is_away_does_not_hold_up_what_waited(self, pool):
        world, hosts, task = pool.world, *self.waits_for_both(pool)
        time.sleep(RECENT_S)
        hosts[1].vanish()
        world.run("host", "enable", "alpha")
        assert [each["turn"]["host"] for each in world.wait(task, status=0)] == ["alpha"]


class TestABranchThatDoesNotContainTheResultOfBefore:
    def test_the_former_result_is_kept_and_named(self, world):
        again = "grep -q second log.txt && amend=--amend; git add .; git commit -q $amend -m one"
        script = f"cat >> log.txt; {again}"
        task = world.submit(script, prompt="first;")
        world.wait(task, status=0)
        ref, delivered = result_ref(world, task)
        world.run("say", task, "second;", "--wait")
        assert not contains(world, ref, delivered)
        told = world.out("result", task)
        assert delivered[:12] in told and f"shunter fetch --kept {task}" in told
        (kept,) = world.json("fetch", task, "--kept")["kept_refs"]
        assert world.git("rev-parse", kept) == delivered
        world.run("close", task)
        (kept,) = world.json("fetch", task, "--kept")["kept_refs"]
        assert world.git("rev-parse", kept) == delivered
