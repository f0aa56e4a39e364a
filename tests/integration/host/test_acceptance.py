"""At most one launch: repeated, late, second and unleased acceptances, and tombstones (S1, S5)."""

from __future__ import annotations

import dataclasses
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shunter.wire.ids import new_attempt_id
from shunter.wire.messages import FactsAsk, Jobs, LeaseRef

from .test_stopping import hold_launches
from .world import Attempt, World, code_of, git, lines_of


def marking(outside: Path) -> tuple[str, ...]:
    return ("sh", "-c", f"echo launched >> {outside}/marks")


def asked_again(attempt: Attempt, *, prompt: str | None = None, **spec: Any) -> Attempt:
    """The same job as a home asks for it that lost the record of its acceptance, so without a lease."""
    again = dataclasses.replace(attempt.spec, attempt_id=new_attempt_id(attempt.spec.job_id), **spec)
    return dataclasses.replace(attempt, spec=again, token="", prompt=attempt.prompt if prompt is None else prompt)


def test_the_same_acceptance_many_times_at_once_launches_once(world: World, outside: Path) -> None:
    attempt = world.prepare(*marking(outside))
    other = world.new_client()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: world.accept(attempt, other if n % 2 else None), range(16)))
    assert {each.state for each in answers} <= {"accepted", "launched", "exited", "ended"}
    world.wait(attempt)
    assert world.accept(attempt).state == "ended"
    assert list(lines_of(outside / "marks")) == ["launched"]


def test_a_tombstone_forbids_a_later_acceptance(world: World, outside: Path) -> None:
    attempt = world.prepare(*marking(outside))
    assert world.tombstone(attempt).state == "tombstoned"
    assert world.tombstone(attempt).state == "tombstoned"
    assert world.slots_used() == 0
    assert code_of(lambda: world.accept(attempt)).code == "TOMBSTONED"
    assert code_of(lambda: world.lease(attempt.id, attempt.spec.job_id, attempt.spec.task_id)).code == "TOMBSTONED"
    assert not world.job(attempt).exists()
    again = world.prepare(*marking(outside), task_id=attempt.spec.task_id)
    world.accept(again)
    world.wait(again)
    assert list(lines_of(outside / "marks")) == ["launched"]


def test_a_lease_that_came_no_further_does_not_hold_up_the_next_attempt(world: World, outside: Path) -> None:
    first = world.prepare(*marking(outside))
    spec = first.spec
    assert world.lease(new_attempt_id("other-1"), "other-1", "other", slots=1).busy
    second = world.lease(new_attempt_id(spec.job_id), spec.job_id, spec.task_id, slots=1)
    assert second.token
    assert code_of(lambda: world.accept(first)).code == "LEASE_LOST"
    assert world.slots_used() == 1


def test_a_job_that_was_accepted_is_told_by_its_attempt_whoever_asks_again(world: World, outside: Path) -> None:
    """An older copy of home's state was put back: it asks by an attempt of its own."""
    first = world.start(*marking(outside), prompt="do it")
    world.wait(first)
    spec, again = first.spec, asked_again(first)
    lease = world.lease(again.id, spec.job_id, spec.task_id)
    assert (lease.token, lease.busy, lease.accepted_as) == (None, None, first.id)
    status = world.accept(again)
    assert (status.attempt_id, status.state) == (first.id, "ended")
    (world.job(first) / "prompt").unlink()  # as after closing: a first message is always the same
    assert world.accept(again).attempt_id == first.id
    known: Jobs = world.client.call("job.known", Jobs((spec.job_id, "other-1")))
    assert known.ids == (spec.job_id,)
    assert list(lines_of(outside / "marks")) == ["launched"]
    assert world.slots_used() == 0


def test_a_tombstone_holds_though_the_files_of_the_job_were_written(world: World, outside: Path) -> None:
    """The session died between the job's directory and the ledger's row; the acceptance comes again, too late."""
    attempt = world.prepare(*marking(outside))
    world.accept(attempt)
    world.wait(attempt)
    with sqlite3.connect(world.layout.ledger) as ledger:
        ledger.execute("DELETE FROM attempt WHERE attempt_id = ?", (attempt.id,))
    ledger.close()
    (world.job(attempt) / "supervisor").unlink()
    assert world.tombstone(attempt).state == "tombstoned"
    assert code_of(lambda: world.accept(attempt)).code == "TOMBSTONED"
    assert not (world.job(attempt) / "supervisor").exists()
    assert list(lines_of(outside / "marks")) == ["launched"]


def test_a_tombstone_after_the_acceptance_is_refused(world: World) -> None:
    attempt, status = world.run("true")
    assert world.tombstone(attempt).state == "ended"
    assert world.status(attempt).end == status.end


def test_another_message_as_the_same_job_is_refused_and_touches_nothing(world: World, outside: Path) -> None:
    script = f"until [ -e {outside}/go ]; do sleep 0.01; done; echo launched >> {outside}/marks"
    before, _ = world.run("true")
    first = world.start("sh", "-c", script, task_id=before.spec.task_id, number=2)
    world.wait(first, "launched")
    second = asked_again(first, session_id="another", prompt="another")
    assert code_of(lambda: world.accept(second)).code == "ATTEMPT_CONFLICT"
    assert not world.job(second).exists()
    assert world.status(first).session_id is None
    (outside / "go").touch()
    world.wait(first)
    assert code_of(lambda: world.accept(second)).code == "ATTEMPT_CONFLICT"
    (world.job(first) / "prompt").unlink()
    assert code_of(lambda: world.accept(asked_again(first))).code == "ATTEMPT_CONFLICT"
    assert list(lines_of(outside / "marks")) == ["launched"]


def test_no_lease_no_launch(world: World, outside: Path) -> None:
    attempt = world.prepare(*marking(outside))
    wrong = dataclasses.replace(attempt, token="0" * 32)
    assert code_of(lambda: world.accept(wrong)).code == "LEASE_LOST"
    assert code_of(lambda: world.client.call("lease.renew", LeaseRef(attempt.id, "0" * 32))).code == "LEASE_LOST"
    unleased = new_attempt_id(attempt.spec.job_id)
    stray = dataclasses.replace(attempt, spec=dataclasses.replace(attempt.spec, attempt_id=unleased))
    assert code_of(lambda: world.accept(stray)).code == "LEASE_LOST"
    assert not world.job(attempt).exists() and not world.job(stray).exists()


def test_an_expired_lease_admits_nothing_and_counts_for_nothing(world: World, outside: Path) -> None:
    attempt = world.prepare(*marking(outside))
    assert world.client.call("host.facts", FactsAsk()).slots_used == 1
    with sqlite3.connect(world.layout.ledger) as ledger:
        ledger.execute("UPDATE lease SET expires_boottime_s = 1.0")
    ledger.close()
    assert world.client.call("host.facts", FactsAsk()).slots_used == 0
    assert code_of(lambda: world.accept(attempt)).code == "LEASE_LOST"
    assert code_of(lambda: world.client.call("lease.renew", LeaseRef(attempt.id, attempt.token))).code == "LEASE_LOST"
    again = world.lease(attempt.id, attempt.spec.job_id, attempt.spec.task_id, slots=1)
    assert again.token is not None and again.token != attempt.token
    world.accept(dataclasses.replace(attempt, token=again.token))
    world.wait(attempt)
    assert list(lines_of(outside / "marks")) == ["launched"]


def test_a_lease_is_held_until_the_end_and_no_longer(world: World) -> None:
    first = world.start("sh", "-c", f"until [ -e {world.root}/go ]; do sleep 0.01; done")
    with sqlite3.connect(world.layout.ledger) as ledger:
        ledger.execute("UPDATE lease SET expires_boottime_s = 1.0")  # an accepted attempt's lease never expires
    ledger.close()
    busy = world.lease("7k2m9x4q1c-1-x81tfa", "7k2m9x4q1c-1", "7k2m9x4q1c", slots=1)
    assert busy.token is None and busy.busy
    world.client.call("lease.release", LeaseRef(first.id, first.token))
    assert world.slots_used() == 1
    (world.root / "go").touch()
    world.wait(first)
    assert world.lease("7k2m9x4q1c-1-x81tfa", "7k2m9x4q1c-1", "7k2m9x4q1c", slots=1).token is not None


def test_an_acceptance_before_a_reboot_is_judged_by_the_boot_of_its_supervisor(world: World, outside: Path) -> None:
    """Nothing about the boot is written at acceptance: a supervisor that starts after a reboot is no dead one."""
    world.run("true")
    let_go = hold_launches(world)
    attempt = world.start(*marking(outside))
    start = (world.job(attempt) / "start").read_bytes()
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    assert boot_id not in start
    let_go()
    world.wait(attempt)
    assert world.supervisor(attempt)["boot_id"] == boot_id.decode()


# --- what a follow-up goes on from ----------------------------------------------------------------------------------


def test_a_result_that_the_host_did_not_publish_is_asked_for_and_then_gone_on_from(world: World) -> None:
    first, _ = world.run("sh", "-c", "echo old > work.txt")
    task_id = first.spec.task_id
    (world.repo / "work.txt").write_text("new\n")
    git(world.repo, "add", ".")
    git(world.repo, "commit", "--quiet", "-m", "what home has")
    oid = git(world.repo, "rev-parse", "HEAD")
    second = world.prepare("sh", "-c", "echo more >> work.txt", task_id=task_id, number=2, result_oid=oid)
    error = code_of(lambda: world.accept(second))
    assert error.code == "RESULT_UNKNOWN" and oid in error.text
    assert world.status(second).state == "unknown"
    sent = dataclasses.replace(second, spec=dataclasses.replace(second.spec, base_oid=oid))
    world.ship(sent)
    world.ship(second)
    world.accept(second)
    end = world.wait(second).end
    assert end is not None and end.publication is not None
    assert world.published(second, "work.txt") == "new\nmore"
    assert end.publication.turn_commits == 1
    assert any(oid[:12] in notice for notice in end.publication.notices)
    (aside,) = world.workspace(second).parent.glob("workspace.before-*")
    assert (aside / "work.txt").read_text() == "old\n"


def test_a_result_that_home_lacks_is_gone_on_from(world: World) -> None:
    """Also when its commit replaced the one that home has: the host knows of both."""
    first, status = world.run("sh", "-c", "echo one > work.txt")
    assert status.end is not None and status.end.publication is not None
    oid, task_id = status.end.publication.head_oid, first.spec.task_id
    for number, script in ((2, "git commit -q --amend -m other"), (3, "echo three >> work.txt")):
        attempt, status = world.run("sh", "-c", script, task_id=task_id, number=number, result_oid=oid)
        assert status.end is not None and status.end.publication is not None
        assert status.end.publication.notices == ()
    assert world.published(attempt, "work.txt") == "one\nthree"
    assert status.end.publication.commits == 2
