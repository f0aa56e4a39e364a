"""A host's data root as it was some time ago: a delivered result is not lost, and what is missing is said."""

from __future__ import annotations

import shutil

import pytest
from e2e_world import World, eventually, kill


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def leave_hosts(world: World) -> None:
    """Until nobody has the data root open."""
    eventually(lambda: not (world.dispatcher_pids() or world.helper_pids() or world.supervisor_pids()))


def two_parts(world: World) -> str:
    """A message that is written down in two parts, the second once somebody says so."""
    return (
        f'cat >> log.txt; touch "{world.marks}/half"; until [ -e "{world.marks}/go" ]; do sleep 0.02; done; date > end'
    )


def take_copy(world: World) -> None:
    """Without what no copy can hold: ears of living processes."""
    ears = shutil.ignore_patterns("*.bell", "*.ends", "bell")
    shutil.copytree(world.data, world.root / "copy", symlinks=True, ignore=ears)


def put_back(world: World) -> None:
    world.data.rename(world.root / "newer")
    (world.root / "copy").rename(world.data)


def result_ref(world: World, task: str) -> tuple[str, str]:
    ref = world.json("result", task)["ref"]
    return ref, world.git("rev-parse", ref)


def contains(world: World, ref: str, oid: str) -> bool:
    return oid in world.git("rev-list", ref).splitlines()


class TestAnOlderCopyOfTheDataRoot:
    def test_a_follow_up_goes_on_from_the_result_that_home_has(self, world):
        task = world.submit(two_parts(world), prompt="first;")
        eventually((world.marks / "half").exists)
        take_copy(world)
        (world.marks / "go").touch()
        world.wait(task, status=0)
        ref, delivered = result_ref(world, task)
        leave_hosts(world)
        put_back(world)
        world.run("reconcile")
        world.run("say", task, "second;", "--wait")
        assert contains(world, ref, delivered)
        assert world.git("show", f"{ref}:log.txt") == "first;second;"
        told = world.out("result", task)
        assert "did not know" in told and delivered[:12] in told

    def test_the_result_waits_for_a_checkout_that_is_gone(self, world):
        task = world.submit(two_parts(world), prompt="first;")
        eventually((world.marks / "half").exists)
        take_copy(world)
        (world.marks / "go").touch()
        world.wait(task, status=0)
        leave_hosts(world)
        put_back(world)
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
        take_copy(world)
        task = world.submit(two_parts(world), prompt="first;")
        eventually((world.marks / "half").exists)
        attempt = world.json("status", task)["turn"]["attempt_id"]
        for pid in (*world.dispatcher_pids(), *world.helper_pids()):
            kill(pid)
        eventually(lambda: not world.helper_pids())
        put_back(world)
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
