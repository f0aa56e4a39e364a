from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from shunter.git.capture import capture_base
from shunter.git.project import normalise_origin, project_id
from shunter.git.repository import open_repository
from shunter.git.transfer import open_transfer
from shunter.wire.errors import ShunterError

from .world import TASK, World, a_repository, commit_all, fingerprint, git, write


def go_round(world: World, where: Path, *guarded: Path, wip: bool = False) -> None:
    """Submit from `where`, work, bring home; everything in `guarded` but objects and our refs stays as it is."""
    before = fingerprint(*guarded)
    repo = open_repository(str(where))
    base = capture_base(repo, world.transfer(repo), wip=wip)
    repo, transfer, _ = world.ship(where, base.oid)
    world.check_out(base.oid)
    assert git(world.workspace(), "rev-parse", "HEAD^{tree}") == base.tree
    write(world.workspace() / "result.txt")
    head = world.publish(base.oid).head_oid
    assert fingerprint(*guarded) == before
    ref = world.bring_home(repo, transfer, head)
    assert git(where, "rev-parse", ref) == head
    git(where, "fsck", "--connectivity-only")
    after = fingerprint(*guarded, objects=False)
    assert all(after[path] == before[path] for path in after if path in before)
    assert all("refs/remotes" in path for path in after if path not in before)


def test_a_subdirectory_a_detached_head_and_a_tag(world: World, user_repo: Path) -> None:
    git(user_repo, "checkout", "-q", "--detach", "HEAD~1")
    repo = open_repository(str(user_repo / "dir1"))
    assert (repo.root, repo.branch) == (str(user_repo), None)
    go_round(world, user_repo / "dir1", user_repo)


def test_a_linked_worktree(world: World, user_repo: Path, tmp_path: Path) -> None:
    linked = tmp_path / "user" / "linked tree"
    git(user_repo, "worktree", "add", "-q", "-b", "side", str(linked))
    commit_all(linked)
    main, side = open_repository(str(user_repo)), open_repository(str(linked))
    assert (main.repo_id, main.project_id) == (side.repo_id, side.project_id)
    assert main.worktree_id != side.worktree_id
    write(linked / "README.md", "changed here\n")
    go_round(world, linked, user_repo, linked, wip=True)


@pytest.mark.parametrize("worktree_config", [False, True])
def test_a_bare_repository_inside_dot_git(world: World, user_repo: Path, tmp_path: Path, worktree_config: bool) -> None:
    project = tmp_path / "user" / "proj"
    project.mkdir()
    git(project, "clone", "-q", "--bare", str(user_repo), str(project / ".git"))
    tree = project / "tree"
    git(project, "worktree", "add", "-q", str(tree), "main")
    if worktree_config:
        git(project, "config", "extensions.worktreeConfig", "true")
    write(tree / "README.md", "changed\n")
    repo = open_repository(str(tree / "dir1"))
    assert repo.root == str(tree)
    go_round(world, tree, project, wip=True)
    with pytest.raises(ShunterError) as caught:
        open_repository(str(project))
    assert caught.value.code == "REPOSITORY_UNSUPPORTED"


def test_a_submodule_is_the_repository(world: World, user_repo: Path, tmp_path: Path) -> None:
    above = a_repository(tmp_path / "user" / "super")
    git(above, "submodule", "add", "-q", str(user_repo), "sub")
    commit_all(above)
    repo = open_repository(str(above / "sub" / "dir1"))
    assert repo.root == str(above / "sub")
    write(above / "sub" / "README.md", "changed\n")
    go_round(world, above / "sub", above, wip=True)


def test_no_repository_and_no_commit(tmp_path: Path) -> None:
    with pytest.raises(ShunterError) as caught:
        open_repository(str(tmp_path))
    assert caught.value.code == "NOT_A_REPOSITORY"
    with pytest.raises(ShunterError) as caught:
        open_repository(str(tmp_path / "missing"))
    assert caught.value.code == "NOT_A_REPOSITORY"
    git(tmp_path, "init", "-q", "unborn")
    with pytest.raises(ShunterError) as caught:
        open_repository(str(tmp_path / "unborn"))
    assert caught.value.code == "UNBORN_HEAD"


def test_a_colocated_jujutsu_repository(world: World, user_repo: Path) -> None:
    git(user_repo, "checkout", "-q", "--detach")
    for number in range(20):
        git(user_repo, "update-ref", f"refs/jj/keep/{number}", "HEAD")
    go_round(world, user_repo, user_repo)
    assert "refs/jj" not in git(Path(world.mirror), "for-each-ref")
    write(user_repo / ".git" / "HEAD", "ref: refs/jj/root\n")
    with pytest.raises(ShunterError) as caught:
        open_repository(str(user_repo))
    assert caught.value.code == "UNBORN_HEAD"


def test_somebody_elses_repository_is_refused_in_gits_words(
    user_repo: Path, monkeypatch: pytest.MonkeyPatch, user_home: Path
) -> None:
    from shunter.host import gitrun

    plain = gitrun.git_environment

    def another_owner(**options: bool) -> dict[str, str]:
        return {**plain(**options), "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}

    monkeypatch.setattr(gitrun, "git_environment", another_owner)
    with pytest.raises(ShunterError) as caught:
        open_repository(str(user_repo))
    assert caught.value.code == "GIT_FAILED"
    assert "dubious ownership" in caught.value.text
    assert str(user_repo) in (caught.value.hint or "")
    (user_home / ".gitconfig").open("a").write(f"[safe]\n\tdirectory = {user_repo}\n")
    assert open_repository(str(user_repo)).root == str(user_repo)


def test_a_shallow_repository(world: World, user_repo: Path, tmp_path: Path) -> None:
    for number in range(3):
        write(user_repo / "n", str(number))
        commit_all(user_repo)
    shallow = tmp_path / "user" / "shallow"
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{user_repo}", str(shallow))
    write(shallow / "README.md", "changed\n")
    assert open_repository(str(shallow)).is_shallow
    go_round(world, shallow, shallow, wip=True)
    assert git(world.workspace(), "rev-list", "--count", "HEAD") == "4"


def test_a_full_repository_fills_up_the_mirror_of_a_shallow_one(world: World, user_repo: Path, tmp_path: Path) -> None:
    shallow = tmp_path / "user" / "shallow"
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{user_repo}", str(shallow))
    world.ship(shallow)
    write(user_repo / "more")
    commit_all(user_repo)
    _, _, base = world.ship(user_repo, task_id="another0id")
    world.check_out(base, "another0id")
    assert world.publish(base, task_id="another0id").head_oid == base


def test_a_partial_clone_with_everything_needed(world: World, user_repo: Path, tmp_path: Path) -> None:
    git(user_repo, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "user" / "partial"
    git(tmp_path, "clone", "-q", "--filter=blob:none", f"file://{user_repo}", str(partial))
    assert open_repository(str(partial)).is_partial
    go_round(world, partial, partial)


def test_a_partial_clone_that_lacks_objects_says_so(world: World, user_repo: Path, tmp_path: Path) -> None:
    git(user_repo, "config", "uploadpack.allowFilter", "true")
    partial = tmp_path / "user" / "partial"
    git(tmp_path, "clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{user_repo}", str(partial))
    before = fingerprint(partial)
    with pytest.raises(ShunterError) as caught:
        world.ship(partial)
    assert caught.value.code == "REPOSITORY_UNSUPPORTED"
    assert "partial clone" in caught.value.text
    assert "git " in (caught.value.hint or "")
    assert fingerprint(partial) == before
    git(partial, *(caught.value.hint or "").split()[1:])
    world.ship(partial)


def test_a_sparse_checkout(world: World, user_repo: Path) -> None:
    git(user_repo, "sparse-checkout", "set", "dir1")
    write(user_repo / "dir1" / "file 1.txt", "changed\n")
    write(user_repo / "outside" / "new.txt")
    repo = open_repository(str(user_repo))
    assert repo.is_sparse
    base = capture_base(repo, world.transfer(repo), wip=True, include=("outside/new.txt",))
    changed = git(Path(world.transfer(repo).path), "diff-tree", "-r", "--name-status", repo.head_oid, base.oid)
    assert changed == "M\tdir1/file 1.txt\nA\toutside/new.txt"
    go_round(world, user_repo, user_repo, wip=True)
    assert (world.workspace() / "dir0" / "file 0.txt").exists()


def test_a_path_with_a_newline_and_other_odd_characters(world: World, tmp_path: Path) -> None:
    user = a_repository(tmp_path / "user" / 'a: "b"\nc=\\d #1')
    write(user / "README.md", "changed\n")
    go_round(world, user, user, wip=True)


def test_a_repository_that_borrows_objects(world: World, user_repo: Path, tmp_path: Path) -> None:
    middle = tmp_path / "user" / "middle"
    git(tmp_path, "clone", "-q", "--shared", str(user_repo), str(middle))
    write(middle / "middle.txt")
    commit_all(middle)
    borrower = tmp_path / "user" / "borrower"
    git(tmp_path, "clone", "-q", "--shared", str(middle), str(borrower))
    write(borrower / ".git" / "objects" / "info" / "alternates", "../../../middle/.git/objects\n")
    write(borrower / "README.md", "changed\n")
    go_round(world, borrower, borrower, wip=True)
    shutil.move(user_repo, tmp_path / "elsewhere")
    with pytest.raises(ShunterError) as caught:
        world.transfer(repo_of(borrower))
    assert caught.value.code == "BASE_UNAVAILABLE"
    assert str(user_repo) in caught.value.text


def repo_of(path: Path):  # type: ignore[no-untyped-def]
    """A repository record made while everything could still be read, as far as the transfer needs it."""
    from types import SimpleNamespace

    return SimpleNamespace(
        repo_id="x",
        is_shallow=False,
        is_partial=False,
        common_dir=str(path / ".git"),
        objects_dir=str(path / ".git" / "objects"),
        object_format="sha1",
    )


def test_replace_refs_do_not_change_what_is_shipped(world: World, user_repo: Path) -> None:
    real = git(user_repo, "rev-parse", "HEAD:README.md")
    other = git(user_repo, "rev-parse", "HEAD:dir0/file 0.txt")
    git(user_repo, "replace", real, other)
    git(user_repo, "replace", "--graft", "HEAD")
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    assert (world.workspace() / "README.md").read_text() == "hello\n"
    assert git(world.workspace(), "rev-list", "--count", "HEAD") == "2"


@pytest.mark.parametrize(
    "url",
    [
        "https://github.com/Owner/Repo.git",
        "https://user:token@github.com/Owner/Repo",
        "https://github.com:443/Owner/Repo/",
        "git@github.com:Owner/Repo.git",
        "ssh://git@GitHub.com:22/Owner/Repo.git",
        "git://github.com/Owner/Repo",
    ],
)
def test_all_forms_of_a_url_name_one_project(url: str) -> None:
    assert normalise_origin(url, relative_to="/") == "github.com/Owner/Repo"


def test_project_ids_are_readable_safe_and_bounded(tmp_path: Path, user_repo: Path) -> None:
    for name in ("Repo", "ü" * 100, "..", "", "a b/c", "x" * 300):
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", project_id(name, "n"))
    git(user_repo, "remote", "add", "origin", "https://me:secret@example.org/team/Widget.git")
    repo = open_repository(str(user_repo))
    assert repo.project_id.startswith("widget-")
    assert repo.name == "Widget"
    local = normalise_origin("../x.git", relative_to="/a/b")
    assert local == normalise_origin("file:///a/x", relative_to="/") == "/a/x"


def test_a_symbolic_link_to_the_repository_is_the_repository(user_repo: Path, tmp_path: Path) -> None:
    os.symlink(user_repo, tmp_path / "link")
    assert open_repository(str(tmp_path / "link")) == open_repository(str(user_repo))


def test_the_transfer_repository_is_kept_by_repository(tmp_path: Path, user_repo: Path) -> None:
    repo = open_repository(str(user_repo))
    first = open_transfer(str(tmp_path / "t"), repo)
    first.pin(TASK, repo.head_oid)
    assert open_transfer(str(tmp_path / "t"), repo) == first
    assert TASK in git(Path(first.path), "for-each-ref")
