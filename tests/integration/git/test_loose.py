"""What is found to stand in a workspace alone after its last turn was published."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from shunter.wire.messages import Publication

from .world import TASK, World, commit_all, fingerprint, git, write


@pytest.fixture
def base(world: World, user_repo: Path) -> str:
    write(user_repo / ".gitignore", "*.log\nbuild/\n")
    commit_all(user_repo)
    _, _, oid = world.ship(user_repo)
    world.check_out(oid)
    return oid


@pytest.fixture
def published(world: World, base: str) -> Publication:
    """Of a turn that committed, left a file and something in the stash, and built something."""
    workspace = world.workspace()
    write(workspace / "README.md", "stashed\n")
    git(workspace, "stash")
    write(workspace / "committed.txt")
    commit_all(workspace)
    write(workspace / "left.txt")
    write(workspace / "build" / "out.o")
    return world.publish(base)


def committed(workspace: Path) -> None:
    write(workspace / "new.txt")
    commit_all(workspace)


def committed_elsewhere(workspace: Path) -> None:
    git(workspace, "checkout", "-q", "-b", "side")
    committed(workspace)
    git(workspace, "checkout", "-q", f"task/{TASK}")


def committed_on_no_branch(workspace: Path) -> None:
    git(workspace, "checkout", "-q", "--detach")
    committed(workspace)


def committed_and_packed(workspace: Path) -> None:
    committed_elsewhere(workspace)
    git(workspace, "pack-refs", "--all")


def stashed(workspace: Path) -> None:
    write(workspace / "committed.txt", "stashed\n")
    git(workspace, "stash")


def noted(workspace: Path) -> None:
    git(workspace, "notes", "add", "-m", "a note")


def committed_in_a_linked_worktree(workspace: Path) -> None:
    linked = workspace.parent / "linked"
    git(workspace, "worktree", "add", "-q", "--detach", str(linked))
    committed(linked)


def committed_in_a_linked_worktree_that_is_gone(workspace: Path) -> None:
    committed_in_a_linked_worktree(workspace)
    shutil.rmtree(workspace.parent / "linked")


def edited_in_an_ignored_linked_worktree(workspace: Path) -> None:
    git(workspace, "worktree", "add", "-q", "-b", "aside", "build/linked")
    write(workspace / "build" / "linked" / "new.txt")


def edited(workspace: Path) -> None:
    write(workspace / "committed.txt", "edited\n")


def edited_and_hidden(workspace: Path) -> None:
    edited(workspace)
    git(workspace, "update-index", "--assume-unchanged", "committed.txt")


def staged(workspace: Path) -> None:
    edited(workspace)
    git(workspace, "add", "committed.txt")


def added(workspace: Path) -> None:
    write(workspace / "dir" / "new.txt")


def cloned_into(workspace: Path) -> None:
    git(workspace, "init", "-q", "inner")
    write(workspace / "inner" / "file")


def no_repository_any_more(workspace: Path) -> None:
    shutil.rmtree(workspace / ".git")
    added(workspace)


def a_link_instead(workspace: Path) -> None:
    workspace.rename(workspace.parent / "elsewhere")
    workspace.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (committed, "commit"),
        (committed_elsewhere, "commit"),
        (committed_on_no_branch, "commit"),
        (committed_and_packed, "commit"),
        (stashed, "commit"),
        (noted, "commit"),
        (committed_in_a_linked_worktree, "a linked worktree: '../linked'"),
        (committed_in_a_linked_worktree_that_is_gone, "commit"),
        (edited_in_an_ignored_linked_worktree, "a linked worktree: 'build/linked'"),
        (edited, "'committed.txt', changed after the last turn"),
        (edited_and_hidden, "'committed.txt', changed"),
        (staged, "'committed.txt', changed"),
        (added, "'dir/new.txt', changed"),
        (cloned_into, "'inner', changed"),
        (no_repository_any_more, "'dir/new.txt', changed"),
        (a_link_instead, "in the place of the workspace"),
    ],
)
def test_what_came_after_the_last_turn_is_found(
    world: World, base: str, published: Publication, change: Callable[[Path], None], words: str
) -> None:
    change(world.workspace())
    assert words in (world.loose(base, published) or "nothing")


def built(workspace: Path) -> None:
    write(workspace / "build" / "more.o")
    write(workspace / "run.log")


def touched(workspace: Path) -> None:
    os.utime(workspace / "committed.txt", (1, 1))


def went_back(workspace: Path) -> None:
    git(workspace, "checkout", "-q", "--detach", "HEAD~2")


def branched(workspace: Path) -> None:
    git(workspace, "branch", "again", "HEAD~1")
    git(workspace, "tag", "-a", "-m", "t", "v1")


def fetched(workspace: Path) -> None:
    git(workspace, "checkout", "-q", "--detach")
    committed(workspace)
    git(workspace, "update-ref", "refs/remotes/other/main", "HEAD")
    git(workspace, "checkout", "-q", f"task/{TASK}")
    git(workspace, "pack-refs", "--all")


def removed_a_linked_worktree(workspace: Path) -> None:
    git(workspace, "worktree", "add", "-q", "--detach", "../linked")
    shutil.rmtree(workspace.parent / "linked")


def removed_a_file(workspace: Path) -> None:
    (workspace / "committed.txt").unlink()


def emptied(workspace: Path) -> None:
    for path in workspace.iterdir():
        shutil.rmtree(path) if path.is_dir() and path.name != ".git" else path.is_file() and path.unlink()


def lost_its_repository(workspace: Path) -> None:
    shutil.rmtree(workspace / ".git")


def lost_its_index(workspace: Path) -> None:
    write(workspace / ".git" / "index", b"DIRC garbage")


def gone(workspace: Path) -> None:
    shutil.rmtree(workspace)


@pytest.mark.parametrize(
    "change",
    [
        *(
            built,
            touched,
            went_back,
            branched,
            removed_a_linked_worktree,
            removed_a_file,
            emptied,
            lost_its_repository,
            lost_its_index,
            gone,
        ),
    ],
)
def test_what_is_ignored_gone_or_known_does_not_count(
    world: World, base: str, published: Publication, change: Callable[[Path], None]
) -> None:
    change(world.workspace())
    assert world.loose(base, published) is None


def test_a_look_runs_nothing_of_the_workspaces_and_leaves_it_as_it_was(
    world: World, base: str, published: Publication
) -> None:
    workspace, mark = world.workspace(), world.tmp / "ran"
    program = write(world.tmp / "program", f"#!/bin/sh\ntouch {mark}\ncat\n")
    program.chmod(0o755)
    for setting in ("core.fsmonitor", "filter.x.clean", "filter.x.process", "core.sshCommand", "diff.external"):
        git(workspace, "config", setting, str(program))
    write(workspace / ".git" / "hooks" / "post-index-change", program.read_text()).chmod(0o755)
    write(workspace / ".git" / "info" / "attributes", "* filter=x\n")
    write(workspace / "committed.txt", "edited\n")
    before = fingerprint(workspace, Path(world.mirror))
    assert "committed.txt" in (world.loose(base, published) or "")
    assert fingerprint(workspace, Path(world.mirror)) == before and not mark.exists()
    assert sorted(os.listdir(workspace.parent)) == [".workspace.lock", "workspace"]


def test_a_pipe_is_waited_for_by_nobody(world: World, base: str, published: Publication) -> None:
    workspace = world.workspace()
    (workspace / "dir").mkdir(exist_ok=True)
    os.mkfifo(workspace / "dir" / ".gitignore")
    write(workspace / "dir" / "new.txt")
    assert "new.txt" in (world.loose(base, published) or "")


def test_what_cannot_be_judged_counts(world: World, base: str, published: Publication) -> None:
    shutil.rmtree(world.mirror)
    assert "could not be looked into" in (world.loose(base, published) or "")
