from __future__ import annotations

from pathlib import Path

import pytest

from shunter.git.capture import capture_base
from shunter.git.repository import open_repository
from shunter.host.mirror import pin_base

from .world import TASK, World, a_repository, commit_all, fingerprint, git, write

pytestmark = pytest.mark.parametrize("way", ["fetch", "pack"], indirect=True)


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_a_result_comes_home_and_the_repository_is_otherwise_untouched(
    world: World, tmp_path: Path, object_format: str
) -> None:
    user = a_repository(tmp_path / "user" / "project", object_format=object_format)
    before = fingerprint(user)
    repo = open_repository(str(user))
    base = capture_base(repo, world.transfer(repo))
    repo, transfer, oid = world.ship(user, base.oid)
    assert pin_base(world.mirror, TASK, oid)
    made = world.check_out(oid)
    assert made.created
    workspace = world.workspace()
    assert git(workspace, "status", "--porcelain") == ""
    assert git(workspace, "rev-parse", "--abbrev-ref", "HEAD") == f"task/{TASK}"
    write(workspace / "new.txt", "new\n")
    commit_all(workspace, "the agent's commit")
    write(workspace / "left over.txt", "left\n")
    published = world.publish(oid)
    assert published.leftovers_committed
    assert (published.commits, published.turn_commits, published.rewritten) == (2, 2, False)
    assert [(each.path, each.status, each.added) for each in published.files] == [
        ("left over.txt", "A", 1),
        ("new.txt", "A", 1),
    ]
    assert fingerprint(user) == before
    ref = world.bring_home(repo, transfer, published.head_oid)
    assert ref == f"refs/remotes/shunter/host-1/task/{TASK}"
    assert git(user, "rev-parse", ref) == published.head_oid
    assert git(user, "show", f"{ref}:left over.txt") == "left"
    git(user, "fsck", "--strict")
    after = fingerprint(user, objects=False)
    assert {path for path in after if path not in before} == {
        str(user / ".git" / part)
        for part in (
            "refs/remotes",
            "refs/remotes/shunter",
            "refs/remotes/shunter/host-1",
            "refs/remotes/shunter/host-1/task",
            f"refs/remotes/shunter/host-1/task/{TASK}",
        )
    }
    assert all(after[path] == before[path] for path in after if path in before)


def test_a_second_turn_goes_on_where_the_first_was_published(world: World, user_repo: Path) -> None:
    repo, transfer, base = world.ship(user_repo)
    world.check_out(base)
    write(world.workspace() / "one.txt")
    first = world.publish(base)
    assert not world.check_out(base).created
    assert git(world.workspace(), "status", "--porcelain") == ""
    write(world.workspace() / "two.txt")
    second = world.publish(base, first.head_oid)
    assert (second.commits, second.turn_commits) == (2, 1)
    world.bring_home(repo, transfer, second.head_oid)
    assert git(user_repo, "diff", "--name-only", base, second.head_oid) == "one.txt\ntwo.txt"


def test_publishing_twice_changes_nothing(world: World, user_repo: Path) -> None:
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    write(world.workspace() / "one.txt")
    first = world.publish(base)
    again = world.publish(base)
    assert again.head_oid == first.head_oid
    assert not again.leftovers_committed
    assert again.files == first.files
