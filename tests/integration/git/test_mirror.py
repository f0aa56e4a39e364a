from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shunter.git.transfer import push_base
from shunter.host.gitrun import run_git
from shunter.host.mirror import HOOK, ensure_mirror, pin_base, sweep_leftovers
from shunter.wire.errors import ShunterError

from .world import TASK, World, a_repository, commit_all, git, receive_pack, upload_pack, write


def push(
    world: World, user_repo: Path, refspec: str, *, command: str | None = None
) -> subprocess.CompletedProcess[bytes]:
    argv = ["git", "push", "--porcelain", f"--receive-pack={command or receive_pack()}", world.mirror, refspec]
    return subprocess.run(argv, cwd=user_repo, capture_output=True)


def refs(world: World) -> list[str]:
    return git(Path(world.mirror), "for-each-ref", "--format=%(refname)").split()


def test_making_a_mirror_is_idempotent_and_safe_in_a_race(world: World) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: ensure_mirror(world.mirror), range(8)))
    assert sum(made) == 1
    mirror = Path(world.mirror)
    assert git(mirror, "config", "gc.auto") == "0"
    assert git(mirror, "config", "extensions.preciousObjects") == "true"
    assert sorted(os.listdir(mirror.parent)) == [".project.git.lock", "project.git"]


def test_a_mirror_with_other_settings_is_put_right(world: World) -> None:
    ensure_mirror(world.mirror)
    git(Path(world.mirror), "config", "gc.auto", "7")
    assert not ensure_mirror(world.mirror)
    assert git(Path(world.mirror), "config", "gc.auto") == "0"


def test_a_mirror_of_another_object_format_is_refused(world: World) -> None:
    ensure_mirror(world.mirror, "sha256")
    with pytest.raises(ShunterError) as caught:
        ensure_mirror(world.mirror, "sha1")
    assert caught.value.code == "REPOSITORY_UNSUPPORTED"


@pytest.mark.parametrize(
    "refspec",
    [
        "HEAD:refs/heads/main",
        f"HEAD:refs/heads/task/{TASK}",
        "HEAD:refs/shunter/bases/another0id",
        f"HEAD:refs/shunter/bases/{TASK}/x",
        f":refs/shunter/bases/{TASK}",
        "HEAD:refs/tags/v1",
    ],
)
def test_only_the_tasks_own_base_can_be_pushed(world: World, user_repo: Path, refspec: str) -> None:
    world.ship(user_repo)
    assert push(world, user_repo, refspec).returncode != 0
    assert refs(world) == [f"refs/shunter/bases/{TASK}"]


def test_a_base_may_be_updated(world: World, user_repo: Path) -> None:
    world.ship(user_repo)
    second = commit_all(user_repo)
    world.ship(user_repo, second)
    assert git(Path(world.mirror), "rev-parse", f"refs/shunter/bases/{TASK}") == second


@pytest.mark.parametrize("state", ["missing", "changed", "not executable", "link"])
def test_the_hook_is_put_right_before_each_push(world: World, user_repo: Path, tmp_path: Path, state: str) -> None:
    world.ship(user_repo)
    hook = Path(world.mirror) / "hooks" / "pre-receive"
    if state == "not executable":
        hook.chmod(0o644)
    else:
        hook.unlink()
    if state == "changed":
        write(hook, "#!/bin/sh\nexit 0\n").chmod(0o755)
    if state == "link":
        os.symlink(write(tmp_path / "other", HOOK), hook)
    assert push(world, user_repo, "HEAD:refs/shunter/bases/another0id").returncode != 0
    assert hook.read_bytes() == HOOK and os.access(hook, os.X_OK) and not hook.is_symlink()


def test_a_base_that_is_there_needs_no_push(world: World, user_repo: Path) -> None:
    _, _, base = world.ship(user_repo)
    assert pin_base(world.mirror, "another0id", base)
    assert not pin_base(world.mirror, "third0id", commit_all(user_repo))
    assert refs(world) == [f"refs/shunter/bases/{TASK}", "refs/shunter/bases/another0id"]


def test_a_lock_that_a_power_cut_left_on_a_base_goes_when_nobody_can_hold_it(world: World, user_repo: Path) -> None:
    _, _, base = world.ship(user_repo)
    lock = Path(world.mirror) / "refs" / "shunter" / "bases" / "another0id.lock"
    write(lock, "")
    with pytest.raises(ShunterError) as refused:
        pin_base(world.mirror, "another0id", base)
    assert refused.value.retryable
    long_ago = time.time() - 60
    os.utime(lock, (long_ago, long_ago))
    assert pin_base(world.mirror, "another0id", base)


def test_a_commit_without_all_its_objects_is_no_base(world: World, user_repo: Path) -> None:
    world.ship(user_repo)
    write(user_repo / "new.txt", "only there\n")
    broken = commit_all(user_repo)
    pack = run_git(["pack-objects", "--stdout"], git_dir=str(user_repo / ".git"), stdin=broken.encode() + b"\n").out
    run_git(["index-pack", "--stdin"], git_dir=world.mirror, stdin=pack)
    git(Path(world.mirror), "cat-file", "-e", broken)
    assert not pin_base(world.mirror, "another0id", broken)


def test_only_the_tasks_result_is_offered(world: World, user_repo: Path) -> None:
    _, _, base = world.ship(user_repo)
    world.ship(user_repo, task_id="another0id")
    for task_id in (TASK, "another0id"):
        world.check_out(base, task_id)
        world.publish(base, task_id=task_id)
    offered = git(user_repo, "ls-remote", f"--upload-pack={upload_pack()}", world.mirror)
    assert offered == f"{base}\trefs/heads/task/{TASK}"


def test_a_push_leaves_packs_and_later_ones_send_only_what_is_new(world: World, user_repo: Path) -> None:
    world.ship(user_repo)
    loose = [entry for entry in os.listdir(Path(world.mirror) / "objects") if len(entry) == 2]
    assert loose == []
    write(user_repo / "one more")
    world.ship(user_repo, commit_all(user_repo), task_id="another0id")
    counts = git(Path(world.mirror), "count-objects", "-v")
    assert "packs: 2" in counts


def test_leftovers_of_cut_connections_are_swept_when_old(world: World) -> None:
    ensure_mirror(world.mirror)
    objects = Path(world.mirror) / "objects"
    for name in ("incoming-abc", "tmp_objdir-incoming-x"):
        write(objects / name / "pack" / "tmp_pack_1")
    write(objects / "pack" / "tmp_pack_2")
    for path in (objects / "incoming-abc", objects / "pack" / "tmp_pack_2"):
        os.utime(path, (1, 1))
    sweep_leftovers(world.mirror)
    assert not (objects / "incoming-abc").exists()
    assert not (objects / "pack" / "tmp_pack_2").exists()
    assert (objects / "tmp_objdir-incoming-x").exists()


def test_a_repository_with_old_faults_is_taken(world: World, user_repo: Path) -> None:
    tree = git(user_repo, "rev-parse", "HEAD^{tree}")
    body = f"tree {tree}\nauthor A <a@b> 1234567890 +51800\ncommitter A<a@b> 1234567890 +0000\n\nold\n"
    done = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin", "--literally"],
        cwd=user_repo,
        input=body.encode(),
        capture_output=True,
    )
    odd = done.stdout.decode().strip()
    _, transfer, _ = world.ship(user_repo)
    push_base(transfer, world.mirror, receive_pack("another0id"), odd, "another0id")
    assert "refs/shunter/bases/another0id" in refs(world)


def test_concurrent_pushes_of_different_tasks(world: World, user_repo: Path) -> None:
    _, transfer, base = world.ship(user_repo)
    tasks = [f"task{number}" for number in range(6)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda task: push_base(transfer, world.mirror, receive_pack(task), base, task), tasks))
    assert len(refs(world)) == 7


def test_a_mirror_of_somebody_else_is_still_ours(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shunter.host import gitrun

    user_repo = a_repository(tmp_path / "user" / "other")
    world.ship(user_repo)
    plain = gitrun.git_environment

    def another_owner(**options: bool) -> dict[str, str]:
        return {**plain(**options), "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}

    monkeypatch.setattr(gitrun, "git_environment", another_owner)
    assert run_git(["rev-parse", "--git-dir"], cwd=world.mirror).text == "."
