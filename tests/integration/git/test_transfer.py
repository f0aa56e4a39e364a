from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shunter.git.capture import capture_base
from shunter.git.repository import Repository, open_repository
from shunter.git.transfer import (
    Transfer,
    fetch_result,
    held_result_ref,
    import_kept,
    import_pack,
    import_result,
    keep_former,
    push_base,
)
from shunter.host.mirror import ensure_mirror
from shunter.wire.errors import ShunterError

from .world import TASK, World, commit_all, fingerprint, git, program, receive_pack, upload_pack, write

both_ways = pytest.mark.parametrize("way", ["fetch", "pack"], indirect=True)


def a_result(world: World, user_repo: Path) -> tuple[Repository, Transfer, str]:
    repo, transfer, base = world.ship(user_repo)
    world.check_out(base)
    write(world.workspace() / "result.txt")
    return repo, transfer, world.publish(base).head_oid


@both_ways
def test_collecting_garbage_in_the_users_repository_loses_nothing(world: World, user_repo: Path) -> None:
    write(user_repo / "README.md", "work in progress\n")
    repo = open_repository(str(user_repo))
    base = capture_base(repo, world.transfer(repo), wip=True)
    repo, transfer, _ = world.ship(user_repo, base.oid)
    git(user_repo, "commit", "-q", "--amend", "-m", "the base is nobody's now")
    git(user_repo, "reflog", "expire", "--expire=now", "--all")
    git(user_repo, "gc", "-q", "--prune=now")
    world.check_out(base.oid)
    write(world.workspace() / "result.txt")
    head = world.publish(base.oid).head_oid
    ref = world.bring_home(repo, transfer, head)
    git(user_repo, "fsck", "--connectivity-only")
    assert git(user_repo, "show", f"{ref}:README.md") == "work in progress"


def test_a_result_of_a_repository_that_is_gone_is_kept_and_found(world: World, user_repo: Path) -> None:
    repo, transfer, head = a_result(world, user_repo)
    shutil.rmtree(user_repo)
    fetch_result(transfer, world.mirror, upload_pack(), TASK, head)
    with pytest.raises(ShunterError) as caught:
        import_result(repo, transfer, "host-1", TASK, head)
    assert caught.value.code == "FETCH_FAILED"
    assert transfer.path in caught.value.text and f"refs/shunter/results/{TASK}" in caught.value.text
    shutil.rmtree(transfer.path + "/objects/info")
    git(Path(transfer.path), "fsck", "--connectivity-only", f"refs/shunter/results/{TASK}")


@both_ways
def test_fetching_and_importing_again_changes_nothing(world: World, user_repo: Path) -> None:
    repo, transfer, head = a_result(world, user_repo)
    world.bring_home(repo, transfer, head)
    before = fingerprint(user_repo)
    assert world.bring_home(repo, transfer, head).endswith(TASK)
    assert fingerprint(user_repo) == before


@both_ways
def test_packed_refs_and_logged_refs_are_fine(world: World, user_repo: Path) -> None:
    git(user_repo, "config", "core.logAllRefUpdates", "always")
    git(user_repo, "pack-refs", "--all")
    repo, transfer, head = a_result(world, user_repo)
    ref = world.bring_home(repo, transfer, head)
    git(user_repo, "pack-refs", "--all")
    write(world.workspace() / "more.txt")
    later = world.publish(repo.head_oid, head).head_oid
    assert world.bring_home(repo, transfer, later) == ref
    assert git(user_repo, "rev-parse", ref) == later
    assert not (user_repo / ".git" / "logs" / ref).exists()


@both_ways
@pytest.mark.parametrize(
    "taken", ["refs/remotes/shunter", "refs/remotes/shunter/host-1", "refs/remotes/shunter/host-1/task"]
)
def test_a_name_that_the_user_took_does_not_stop_the_result(world: World, user_repo: Path, taken: str) -> None:
    git(user_repo, "update-ref", taken, "HEAD")
    repo, transfer, head = a_result(world, user_repo)
    ref = world.bring_home(repo, transfer, head)
    assert git(user_repo, "rev-parse", ref) == head
    assert git(user_repo, "rev-parse", taken) == repo.head_oid
    assert world.bring_home(repo, transfer, head) == ref


@both_ways
def test_a_branch_called_task_or_shunter_is_no_conflict(world: World, user_repo: Path) -> None:
    for name in ("task", "shunter", "remotes/shunter/x"):
        git(user_repo, "branch", name)
    repo, transfer, head = a_result(world, user_repo)
    assert world.bring_home(repo, transfer, head) == f"refs/remotes/shunter/host-1/task/{TASK}"


@both_ways
def test_tags_of_the_agent_do_not_travel(world: World, user_repo: Path) -> None:
    repo, transfer, base = world.ship(user_repo)
    world.check_out(base)
    git(world.workspace(), "tag", "v9")
    write(world.workspace() / "x")
    commit_all(world.workspace())
    git(world.workspace(), "tag", "-a", "-m", "t", "v10")
    head = world.publish(base).head_oid
    world.bring_home(repo, transfer, head)
    assert git(user_repo, "tag") == ""


def test_other_finished_work_can_be_fetched_too(world: World, user_repo: Path) -> None:
    _, transfer, base = world.ship(user_repo)
    world.check_out(base)
    workspace = world.workspace()
    git(workspace, "checkout", "-q", "-b", "other")
    write(workspace / "other.txt")
    other = commit_all(workspace)
    git(workspace, "checkout", "-q", f"task/{TASK}")
    published = world.publish(base)
    fetch_result(transfer, world.mirror, upload_pack(), TASK, published.head_oid, kept=True)
    assert git(Path(transfer.path), "rev-parse", published.kept[0].ref) == other


def test_another_head_than_the_wanted_one_is_a_failure(world: World, user_repo: Path) -> None:
    _, transfer, head = a_result(world, user_repo)
    with pytest.raises(ShunterError) as caught:
        fetch_result(transfer, world.mirror, upload_pack(), TASK, "1" * 40)
    assert caught.value.code == "FETCH_FAILED"
    assert head in caught.value.text


def test_a_program_that_dies_or_talks_nonsense_is_a_failed_transfer(world: World, user_repo: Path) -> None:
    repo = open_repository(str(user_repo))
    transfer = world.transfer(repo)
    ensure_mirror(world.mirror)
    for command in ("false", "echo nonsense", "/does/not/exist", program("import os; os._exit(3)")):
        with pytest.raises(ShunterError) as caught:
            push_base(transfer, world.mirror, command, repo.head_oid, TASK)
        assert caught.value.code == "TRANSFER_FAILED"
    with pytest.raises(ShunterError) as caught:
        push_base(transfer, world.mirror, receive_pack("another0id"), repo.head_oid, TASK)
    assert caught.value.code == "TRANSFER_FAILED"
    assert "may not be written" in caught.value.text


def test_a_push_that_is_cut_leaves_no_ref_and_can_be_repeated(world: World, user_repo: Path) -> None:
    for number in range(40):
        write(user_repo / f"random{number}", os.urandom(20_000))
    commit_all(user_repo)
    repo = open_repository(str(user_repo))
    transfer = world.transfer(repo)
    ensure_mirror(world.mirror)
    inner = receive_pack()
    cutting = f'f() {{ head -c 200000 | {inner} "$1"; kill -9 $$; }}; f'
    with pytest.raises(ShunterError) as caught:
        push_base(transfer, world.mirror, cutting, repo.head_oid, TASK)
    assert caught.value.code == "TRANSFER_FAILED"
    assert git(Path(world.mirror), "for-each-ref") == ""
    push_base(transfer, world.mirror, inner, repo.head_oid, TASK)
    push_base(transfer, world.mirror, inner, repo.head_oid, TASK)
    git(Path(world.mirror), "fsck", "--full")


def test_a_full_disk_on_the_host_has_its_own_code(world: World, user_repo: Path) -> None:
    repo = open_repository(str(user_repo))
    ensure_mirror(world.mirror)
    command = "echo 'fatal: write error: No space left on device' >&2; false"
    with pytest.raises(ShunterError) as caught:
        push_base(world.transfer(repo), world.mirror, command, repo.head_oid, TASK)
    assert caught.value.code == "DISK_FULL"


@both_ways
def test_an_import_waits_for_nobody_elses_garbage_collection(world: World, user_repo: Path) -> None:
    git(user_repo, "config", "gc.auto", "1")
    repo, transfer, head = a_result(world, user_repo)
    world.bring_home(repo, transfer, head)
    assert not (user_repo / ".git" / "gc.pid").exists()
    assert git(user_repo, "count-objects", "-v").split("\n")[3] == "packs: 0"


def count_packs(repo: Path) -> int:
    return len(list((repo / ".git" / "objects" / "pack").glob("*.pack")))


def test_a_small_result_needs_no_transport(world: World, user_repo: Path) -> None:
    repo, transfer, head = a_result(world, user_repo)
    pack = world.pack(transfer, head)
    assert pack is not None
    taken = import_pack(repo, transfer, "host-1", TASK, head, pack)
    assert taken is not None and taken.oid == head
    git(user_repo, "fsck", "--strict")
    git(user_repo, "update-ref", "-d", taken.ref)
    git(user_repo, "prune", "--expire=now")
    assert git(Path(transfer.path), "rev-parse", held_result_ref(TASK)) == head
    git(Path(transfer.path), "fsck", "--strict", "--connectivity-only")  # it has a copy of its own


def test_a_result_of_many_objects_stays_a_pack(world: World, user_repo: Path) -> None:
    repo, transfer, base = world.ship(user_repo)
    world.check_out(base)
    for number in range(120):
        write(world.workspace() / f"{number}.txt", f"{number}\n")
    head = world.publish(base).head_oid
    before = count_packs(user_repo)
    pack = world.pack(transfer, head)
    assert pack is not None and import_pack(repo, transfer, "host-1", TASK, head, pack) is not None
    assert count_packs(user_repo) == before + 1


def test_a_large_result_has_no_pack(world: World, user_repo: Path) -> None:
    _, transfer, base = world.ship(user_repo)
    world.check_out(base)
    write(world.workspace() / "noise", os.urandom(600_000))
    assert world.pack(transfer, world.publish(base).head_oid) is None


def test_another_head_than_the_published_one_has_no_pack(world: World, user_repo: Path) -> None:
    _, transfer, head = a_result(world, user_repo)
    assert world.pack(transfer, git(user_repo, "rev-parse", "HEAD")) is None
    assert world.pack(transfer, head) is not None


@pytest.mark.parametrize("damage", [b"", b"PACK", b"nonsense" * 40, "cut", "flipped"])
def test_a_damaged_pack_is_passed_over(world: World, user_repo: Path, damage: bytes | str) -> None:
    repo, transfer, head = a_result(world, user_repo)
    whole = world.pack(transfer, head)
    assert whole is not None
    made = {"cut": whole[:-30], "flipped": whole[:40] + bytes([whole[40] ^ 1]) + whole[41:]}
    pack = made[damage] if isinstance(damage, str) else damage
    assert import_pack(repo, transfer, "host-1", TASK, head, pack) is None
    fetch_result(transfer, world.mirror, upload_pack(), TASK, head, pack=pack)
    assert import_result(repo, transfer, "host-1", TASK, head).oid == head
    git(user_repo, "fsck", "--strict")


def test_a_base_that_only_the_transfer_repository_has_comes_along(world: World, user_repo: Path) -> None:
    """The base is uncommitted work, so the pack of what came after it is not enough for the user's repository."""
    write(user_repo / "README.md", "work in progress\n")
    repo = open_repository(str(user_repo))
    base = capture_base(repo, world.transfer(repo), wip=True)
    repo, transfer, _ = world.ship(user_repo, base.oid)
    world.check_out(base.oid)
    write(world.workspace() / "result.txt")
    head = world.publish(base.oid).head_oid
    pack = world.pack(transfer, head)
    assert pack is not None and import_pack(repo, transfer, "host-1", TASK, head, pack) is None
    fetch_result(transfer, "/nowhere", "false", TASK, head, pack=pack)
    ref = import_result(repo, transfer, "host-1", TASK, head).ref
    assert git(user_repo, "show", f"{ref}:README.md") == "work in progress"
    git(user_repo, "fsck", "--strict")


def test_a_shallow_mirror_has_no_pack(world: World, user_repo: Path) -> None:
    _, transfer, head = a_result(world, user_repo)
    Path(world.mirror, "shallow").write_text(git(user_repo, "rev-parse", "HEAD") + "\n")
    assert world.pack(transfer, head) is None


@both_ways
def test_a_lock_that_a_power_cut_at_home_left_does_not_stop_a_result(world: World, user_repo: Path) -> None:
    repo, transfer, head = a_result(world, user_repo)
    for ref in (f"refs/shunter/results/{TASK}", f"refs/shunter/bases/{TASK}"):
        lock = write(Path(transfer.path, ref + ".lock"), "")
        os.utime(lock, (1, 1))
    transfer.pin(TASK, repo.head_oid)
    assert world.bring_home(repo, transfer, head).endswith(TASK)


@both_ways
def test_a_delivered_commit_that_the_next_result_lacks_is_kept_from_any_garbage_collection(
    world: World, user_repo: Path
) -> None:
    repo, transfer, former = a_result(world, user_repo)
    base = repo.head_oid
    world.bring_home(repo, transfer, former)
    git(world.workspace(), "commit", "-q", "--amend", "-m", "another message")
    head = world.publish(base).head_oid
    world.bring_home(repo, transfer, head)
    for _ in range(2):
        assert keep_former(transfer, TASK, former, head) == f"refs/shunter/kept/{TASK}/result-{former[:12]}"
    git(user_repo, "gc", "-q", "--prune=now")
    (ref,) = import_kept(repo, transfer, "host-1", TASK)
    assert git(user_repo, "rev-parse", ref) == former
    git(user_repo, "fsck", "--strict")


def test_a_delivered_commit_that_the_next_result_contains_or_nobody_has_is_not_kept(
    world: World, user_repo: Path
) -> None:
    repo, transfer, former = a_result(world, user_repo)
    world.bring_home(repo, transfer, former)
    write(world.workspace() / "result.txt", "more\n")
    head = world.publish(repo.head_oid).head_oid
    world.bring_home(repo, transfer, head)
    assert keep_former(transfer, TASK, former, head) is None
    assert keep_former(transfer, TASK, "1" * 40, head) is None
    assert import_kept(repo, transfer, "host-1", TASK) == ()


def test_a_host_whose_branch_went_back_does_not_take_the_result_along(world: World, user_repo: Path) -> None:
    repo, transfer, head = a_result(world, user_repo)
    ref = world.bring_home(repo, transfer, head)
    git(Path(world.mirror), "update-ref", f"refs/heads/task/{TASK}", repo.head_oid)
    git(user_repo, "update-ref", "-d", ref)
    assert git(user_repo, "rev-parse", world.bring_home(repo, transfer, head)) == head
    assert git(Path(transfer.path), "rev-parse", held_result_ref(TASK)) == head
