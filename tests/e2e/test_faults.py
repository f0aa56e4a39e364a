"""Broken configuration, store and disk: a clear error, the right exit status, nothing overwritten (P16)."""

from __future__ import annotations

import os
import subprocess

import pytest
from e2e_world import eventually
from read_only import read_only
from small_disk import fill, small_disk

from shunter.model.states import Step
from shunter.store.sqlite import open_store
from shunter.wire.ids import new_attempt_id


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("slots = 3\n", ["slots"]),
        ("[limits]\nquiet_s = 'soon'\n", ["limits.quiet_s", "soon", "duration"]),
        ("[[hosts]]\nname = 'A B'\n", ["hosts[1].name", "A B", "lower-case"]),
        ("[defaults]\npermision = 'workspace'\n", ["defaults.permision", "permission"]),
        ("[limits\n", ["line 1"]),
    ],
)
def test_a_wrong_configuration_names_file_key_value_and_form(world, text, words):
    world.config.write_text(text)
    done = world.run("submit", "-a", "exec:cat", "go", status=64)
    for word in ["CONFIG_INVALID", str(world.config), *words]:
        assert word in done.stderr.decode(), done.stderr
    assert not world.state.exists()
    error = world.run("config", "show", "--json", status=64).stdout
    assert b'"code":"CONFIG_INVALID"' in error


def test_another_configuration_file_can_be_named(world):
    other = world.root / "other.toml"
    other.write_text("[defaults]\nagent = 'exec:cat'\n")
    env = {"SHUNTER_CONFIG": str(other)}
    assert "exec:cat" in world.out("config", "show", env=env)
    missing = {"SHUNTER_CONFIG": str(world.root / "missing.toml")}
    assert b"missing.toml" in world.run("config", "show", status=64, env=missing).stderr


def test_a_store_whose_file_is_gone_is_damaged_for_whoever_looks(world):
    task = world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done; touch x')
    eventually(lambda: world.json("status", task)["phrase"] == "running")
    (world.state / "store.db").rename(world.root / "aside")
    for words in (["list"], ["status", task], ["hosts"], ["wait", task], ["submit", "-a", "exec:true", "go"]):
        assert b"STORE_DAMAGED" in world.run(*words, status=None).stderr, words
    (world.root / "aside").rename(world.state / "store.db")
    (world.marks / "go").touch()
    world.wait(task, status=0)


def test_a_dispatcher_that_does_not_start_says_why(world):
    world.state.mkdir(parents=True)
    (world.state / "wake").write_text("somebody's")
    for words in (["submit", "-a", "exec:true", "go"], ["reconcile"]):
        told = world.run(*words, status=None).stderr.decode()
        assert "NO_DISPATCHER" in told and "is in the way" in told, words
    (world.state / "wake").unlink()
    world.out("reconcile")
    world.wait(world.json("list")[0]["id"], status=None)


def test_an_unknown_agent_host_or_task_is_named(world):
    assert b"codxe" in world.run("submit", "-a", "codxe", "go", status=64).stderr
    assert b"HOST_UNKNOWN" in world.run("submit", "-a", "exec:cat", "--host", "mars", "go", status=64).stderr
    assert b"AGENT_OPTION" in world.run("submit", "-a", "exec:cat", "--model", "x", "go", status=64).stderr
    assert b"TASK_UNKNOWN" in world.run("status", "zzz", status=64).stderr
    assert b"BASE_NOT_FOUND" in world.run("submit", "-a", "exec:cat", "--base", "nope", "go", status=64).stderr
    assert not list(world.state.glob("prompts/*"))


@pytest.mark.parametrize("damage", ["truncated", "foreign", "newer"])
def test_a_store_that_cannot_be_read_is_left_as_it_is(world, damage):
    world.wait(world.submit("echo x > x"))
    eventually(lambda: not world.dispatcher_pids())
    path = world.state / "store.db"
    for suffix in ("-wal", "-shm"):
        (world.state / f"store.db{suffix}").unlink(missing_ok=True)
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:100])
    elif damage == "foreign":
        path.write_bytes(b"not a database at all" * 100)
    else:
        subprocess.run(["sqlite3", str(path), "PRAGMA user_version = 99"], check=True)
    before = path.read_bytes()
    code = b"STORE_NEWER" if damage == "newer" else b"STORE_DAMAGED"
    for words in (("list",), ("submit", "-a", "exec:cat", "go"), ("reconcile",)):
        done = world.run(*words, status=69)
        assert code in done.stderr
    assert path.read_bytes() == before


def test_a_turn_that_waited_through_an_outage_has_all_its_tries_left(world):
    world.config.write_text(world.config.read_text().replace("slots", "enabled = false\nslots"))
    task = world.submit("echo x > x")
    for pid in eventually(world.dispatcher_pids):
        os.kill(pid, 9)
    store = open_store(str(world.state / "store.db"))
    (turn,) = store.load_turns(task)
    leader = store.read_leader().owner
    for _ in range(8):
        attempt = new_attempt_id(turn.id)
        assert store.claim_row(turn.id, host="local", attempt_id=attempt, owner=leader.id, now=1.0)
        assert store.return_row(turn.id, attempt, Step.CLAIMED, actor="test", now=1.0, reason_code="HOST_UNREACHABLE")
    store.close()
    (world.data / "ledger.db").mkdir(parents=True)
    world.configure()
    world.run("reconcile")
    eventually(lambda: "LEDGER_UNAVAILABLE" in world.log())
    (world.data / "ledger.db").rmdir()
    (found,) = world.wait(task, status=0)
    assert found["phrase"] == "done"


@pytest.mark.parametrize("left_kib", [32, 160, 200, 260, 300, 340])
def test_a_full_disk_is_named_and_leaves_nothing_half_done(world, left_kib):
    with small_disk(world.state.parent, "8m"):
        empty = fill(world.state.parent, left_kib=left_kib)
        done = world.run("submit", "-a", "exec:cat", "go", status=None)
        assert done.returncode == 0 or (done.returncode == 74 and b"DISK_FULL" in done.stderr), done.stderr
        for pid in world.dispatcher_pids():
            os.kill(pid, 9)
        had = done.stdout.decode().split()
        empty()
        task = world.submit("echo x > x")
        assert [each["id"] for each in world.json("list", "--all")] == [task, *had]
        world.wait(task, status=0)
        for pid in world.dispatcher_pids():
            os.kill(pid, 9)


def test_a_host_whose_disk_is_read_only_is_unfit_and_takes_its_task_afterwards(world):
    world.wait(world.submit("touch first"), status=0)
    eventually(lambda: not (world.dispatcher_pids() or world.helper_pids()))
    with read_only(world.data) as unmount:
        told = world.out("hosts", "--refresh")
        assert "unfit" in told and "DISK_UNUSABLE" in told and "dmesg" in told, told
        task = world.submit("touch second")
        eventually(lambda: "DISK_UNUSABLE" in world.out("status", task))
        assert world.json("status", task)["phrase"] == "waiting"
        unmount()
    world.wait(task, status=0)
    assert [host["state"] for host in world.json("hosts", "--refresh")] == ["ready"]
