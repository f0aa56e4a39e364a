from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shunter.host.publish import compare, publish_workspace
from shunter.wire import codec
from shunter.wire.errors import ShunterError

from .world import IDENTITY, TASK, World, commit_all, fingerprint, git, write


@pytest.fixture
def base(world: World, user_repo: Path) -> str:
    _, _, oid = world.ship(user_repo)
    world.check_out(oid)
    return oid


def files_of(world: World, oid: str) -> set[str]:
    return set(git(Path(world.mirror), "ls-tree", "-r", "--name-only", oid).split("\n"))


def is_complete(world: World, oid: str) -> bool:
    return git(Path(world.mirror), "fsck", "--no-dangling", oid) == ""


def test_an_untouched_workspace_publishes_its_base(world: World, base: str) -> None:
    published = world.publish(base)
    assert (published.head_oid, published.leftovers_committed, published.files_total) == (base, False, 0)
    assert git(Path(world.mirror), "rev-parse", f"refs/heads/task/{TASK}") == base
    assert codec.loads(type(published), codec.dumps(published)) == published


def test_a_stale_lock_does_not_matter_and_does_not_stay(world: World, base: str) -> None:
    workspace = world.workspace()
    write(workspace / "left")
    for lock in ("index.lock", "HEAD.lock", f"refs/heads/task/{TASK}.lock"):
        write(workspace / ".git" / lock, "")
    published = world.publish(base)
    assert published.leftovers_committed
    assert git(workspace, "status", "--porcelain") == ""
    assert git(workspace, "rev-parse", "HEAD") == published.head_oid
    commit_all(workspace, "the next turn can commit")


def test_a_lock_that_a_power_cut_left_in_the_mirror_does_not_matter(world: World, base: str) -> None:
    workspace = world.workspace()
    git(workspace, "checkout", "-q", "-b", "other")
    aside = commit_all(workspace, "aside")
    git(workspace, "checkout", "-q", "-")
    for ref in (f"refs/heads/task/{TASK}", f"refs/shunter/kept/{TASK}/1"):
        write(Path(world.mirror) / f"{ref}.lock", "")
    write(workspace / "left")
    published = world.publish(base)
    assert published.leftovers_committed
    assert [each.oid for each in published.kept] == [aside]


def test_left_overs_have_the_tasks_identity_and_message(world: World, base: str) -> None:
    write(world.workspace() / "left")
    head = world.publish(base).head_oid
    about = git(Path(world.mirror), "log", "-1", "--format=%an|%ae|%cn|%s|%P", head)
    assert about == f'Ann "A" Agent|ann@example.org|Ann "A" Agent|left-over files of the turn|{base}'


def test_modes_links_deletions_and_type_changes_are_left_overs(world: World, base: str) -> None:
    workspace = world.workspace()
    os.chmod(workspace / "README.md", 0o755)
    os.symlink("/etc", workspace / "etc")
    os.symlink("../../../secret", workspace / "escape")
    os.symlink("loop", workspace / "loop")
    shutil.rmtree(workspace / "dir0")
    os.symlink("dir1", workspace / "dir0")
    os.unlink(workspace / "dir2" / "file 2.txt")
    write(workspace / "dir2" / "file 2.txt" / "inside")
    os.mkfifo(workspace / "pipe")
    published = world.publish(base)
    tree = git(Path(world.mirror), "ls-tree", "-r", published.head_oid)
    modes = {line.split("\t")[1]: line.split()[0] for line in tree.split("\n")}
    assert modes == {
        "README.md": "100755",
        "etc": "120000",
        "escape": "120000",
        "loop": "120000",
        "dir0": "120000",
        "dir1/file 1.txt": "100644",
        "dir1/file 4.txt": "100644",
        "dir2/file 2.txt/inside": "100644",
    }


def test_nested_repositories_are_left_out_and_named(world: World, base: str) -> None:
    workspace = world.workspace()
    for name in ("old templates", "new\nline"):
        (workspace / name).mkdir()
        git(workspace / name, "init", "-q")
        write(workspace / name / "file")
    shutil.copytree(workspace / "old templates", workspace / "with commit")
    commit_all(workspace / "with commit")
    write(workspace / "kept.txt")
    published = world.publish(base)
    assert [each.path for each in published.files] == ["kept.txt"]
    assert len([each for each in published.left_out if "repository of its own" in each]) == 3


def test_ignored_files_stay_out(world: World, base: str) -> None:
    workspace = world.workspace()
    write(workspace / ".gitignore", "*.log\n")
    write(workspace / ".git" / "info" / "exclude", "scratch\n")
    write(workspace / "a.log")
    write(workspace / "scratch")
    assert [each.path for each in world.publish(base).files] == [".gitignore"]


def test_an_unreadable_file_is_named_and_the_rest_is_published(world: World, base: str) -> None:
    write(world.workspace() / "closed").chmod(0)
    write(world.workspace() / "open")
    if os.access(world.workspace() / "closed", os.R_OK):
        pytest.skip("this account may read everything")
    published = world.publish(base)
    assert [each.path for each in published.files] == ["open"]
    assert any("closed" in notice for notice in published.notices)


@pytest.mark.parametrize("state", ["detached", "other branch", "rebase", "merge"])
def test_head_is_the_result_wherever_it_stands(world: World, base: str, state: str) -> None:
    workspace = world.workspace()
    if state == "detached":
        git(workspace, "checkout", "-q", "--detach")
    elif state == "other branch":
        git(workspace, "checkout", "-q", "-b", "feature/x")
    else:
        git(workspace, "checkout", "-q", "-b", "side")
        write(workspace / "README.md", "side\n")
        commit_all(workspace)
        git(workspace, "checkout", "-q", f"task/{TASK}")
        write(workspace / "README.md", "task\n")
        commit_all(workspace)
        git(workspace, state, "side", check=False)
    write(workspace / "work.txt")
    published = world.publish(base)
    assert git(workspace, "rev-parse", "HEAD") == published.head_oid
    assert "work.txt" in files_of(world, published.head_oid)
    assert is_complete(world, published.head_oid)


def test_work_on_other_branches_tags_and_the_stash_is_kept(world: World, base: str) -> None:
    workspace = world.workspace()
    git(workspace, "checkout", "-q", "-b", "experiment")
    write(workspace / "experiment.txt")
    experiment = commit_all(workspace)
    git(workspace, "checkout", "-q", "--detach")
    write(workspace / "tagged.txt")
    tagged = commit_all(workspace)
    git(workspace, "tag", "-a", "-m", "t", "v1")
    git(workspace, "checkout", "-q", f"task/{TASK}")
    write(workspace / "README.md", "stashed\n")
    git(workspace, "stash")
    git(workspace, "branch", "merged")
    git(workspace, "gc", "-q")
    published = world.publish(base)
    assert {each.name for each in published.kept} == {"refs/heads/experiment", "refs/tags/v1", "refs/stash"}
    assert published.head_oid == base
    for each in published.kept:
        assert each.ref.startswith(f"refs/shunter/kept/{TASK}/")
        assert git(Path(world.mirror), "rev-parse", each.ref) == each.oid
    git(Path(world.mirror), "cat-file", "-e", experiment)
    git(Path(world.mirror), "cat-file", "-e", tagged)
    assert world.publish(base).kept == published.kept


@pytest.mark.parametrize("is_packed", [False, True])
def test_commits_of_any_ref_are_kept_but_not_what_was_fetched(world: World, base: str, is_packed: bool) -> None:
    workspace = world.workspace()
    git(workspace, "notes", "add", "-m", "a note")
    git(workspace, "checkout", "-q", "--detach")
    for ref in ("refs/custom/x", "refs/remotes/other/main"):
        oid = commit_all(workspace, ref)
        git(workspace, "update-ref", ref, oid)
        git(workspace, "checkout", "-q", base)
    git(workspace, "checkout", "-q", f"task/{TASK}")
    if is_packed:
        git(workspace, "pack-refs", "--all")
    assert {each.name for each in world.publish(base).kept} == {"refs/notes/commits", "refs/custom/x"}


def test_refs_that_cannot_be_listed_are_told(world: World, base: str) -> None:
    workspace = world.workspace()
    git(workspace, "checkout", "-q", "-b", "work")
    oid = commit_all(workspace)
    git(workspace, "checkout", "-q", f"task/{TASK}")
    object_file = workspace / ".git" / "objects" / oid[:2] / oid[2:]
    object_file.chmod(0o644)
    write(object_file, "garbage")
    [left] = world.publish(base).left_out
    assert left.startswith("what other refs name") and oid in left


def test_a_commit_that_only_a_linked_worktree_names_is_kept(world: World, base: str) -> None:
    workspace = world.workspace()
    git(workspace, "worktree", "add", "-q", "--detach", "../feature")
    write(workspace.parent / "feature" / "work")
    oid = commit_all(workspace.parent / "feature")
    published = world.publish(base)
    assert [(each.name, each.oid) for each in published.kept] == [("worktrees/feature/HEAD", oid)]
    assert git(Path(world.mirror), "rev-parse", published.kept[0].ref) == oid
    assert published.left_out == ("a linked worktree: '../feature', which may hold uncommitted files",)
    shutil.rmtree(workspace.parent / "feature")
    again = world.publish(base)
    assert (again.kept, again.left_out) == (published.kept, ())


def test_a_linked_worktree_on_a_branch_or_on_a_known_commit_is_kept_once_at_most(world: World, base: str) -> None:
    workspace = world.workspace()
    git(workspace, "worktree", "add", "-q", "--detach", "../behind", base)
    git(workspace, "worktree", "add", "-q", "-b", "feature", str(world.tmp / "far"))
    write(world.tmp / "far" / "work")
    oid = commit_all(world.tmp / "far")
    git(workspace, "worktree", "add", "-q", "--detach", "../same", "feature")
    write(workspace / "merged")
    commit_all(workspace)
    published = world.publish(base)
    assert [(each.name, each.oid) for each in published.kept] == [("refs/heads/feature", oid)]
    places = ("../behind", str(world.tmp / "far"), "../same")
    assert published.left_out == tuple(
        f"a linked worktree: {each!r}, which may hold uncommitted files" for each in places
    )


def test_a_linked_worktree_inside_the_workspace_is_named_once_also_an_ignored_one(world: World, base: str) -> None:
    workspace = world.workspace()
    write(workspace / ".gitignore", "ignored/\n")
    for place in ("seen", "ignored/unseen"):
        git(workspace, "worktree", "add", "-q", "--detach", place)
        write(workspace / place / "file")
    published = world.publish(base)
    assert sorted(published.left_out) == [
        "a linked worktree: 'ignored/unseen', which may hold uncommitted files",
        "a repository of its own: 'seen'",
    ]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("no gitdir", "'feature'"),
        ("gitdir link", "'feature'"),
        ("gitdir pipe", "'feature'"),
        ("gitdir of bytes", "'feature'"),
        ("gitdir too long", "'feature'"),
        ("entry link", "'feature'"),
        ("all a link", "'worktrees'"),
        ("all a file", "'worktrees'"),
        ("too many", "'1 more'"),
    ],
)
def test_linked_worktrees_that_cannot_be_told_are_named(world: World, base: str, damage: str, words: str) -> None:
    workspace = world.workspace()
    listed = workspace / ".git" / "worktrees"
    git(workspace, "worktree", "add", "-q", "--detach", "../feature")
    entry, gitdir = listed / "feature", listed / "feature" / "gitdir"
    if damage == "too many":
        for number in range(100):
            write(listed / f"a{number}" / "gitdir", "/nowhere/.git\n")
    elif damage.startswith("gitdir of"):
        write(gitdir, b"/\0\xff/.git\n")
    elif damage.startswith("gitdir too"):
        write(gitdir, "/x" * 4096)
    elif damage.startswith("all"):
        listed.rename(workspace.parent / "aside")
        listed.symlink_to(workspace.parent / "aside") if damage.endswith("link") else write(listed)
    elif damage == "entry link":
        entry.rename(workspace.parent / "aside")
        entry.symlink_to(workspace.parent / "aside")
    else:
        gitdir.unlink()
        if damage == "gitdir link":
            gitdir.symlink_to("/etc/hostname")
        elif damage == "gitdir pipe":
            os.mkfifo(gitdir)
    assert world.publish(base).left_out == (f"a linked worktree whose place cannot be told: {words}",)


def test_the_head_of_a_linked_worktree_that_names_nothing_is_told(world: World, base: str) -> None:
    workspace = world.workspace()
    write(workspace / ".git" / "worktrees" / "new\nline" / "HEAD", "1" * 40)
    published = publish_workspace(
        str(workspace),
        world.mirror,
        task_id=TASK,
        base_oid=base,
        turn_base_oid=base,
        message="left",
        identity=IDENTITY,
    )
    assert published.kept == ()
    assert any(each.startswith("worktrees/new?line/HEAD could not be kept") for each in published.notices)


def test_a_linked_worktree_may_be_named_relative_to_its_entry(world: World, base: str) -> None:
    workspace = world.workspace()
    git(workspace, "worktree", "add", "-q", "--detach", "../feature")
    write(workspace / ".git" / "worktrees" / "feature" / "gitdir", "../../../../feature/.git\n")
    assert world.publish(base).left_out == ("a linked worktree: '../feature', which may hold uncommitted files",)


def test_a_rewritten_history_is_said_to_be_one(world: World, base: str) -> None:
    workspace = world.workspace()
    git(workspace, "commit", "-q", "--amend", "-m", "rewritten")
    published = world.publish(base)
    assert published.rewritten
    assert published.commits == 1


@pytest.mark.parametrize(
    "damage",
    ["unborn", "orphan", "garbage", "missing object", "no git", "index", "index link", "index pipe", "head gone"],
)
def test_a_damaged_repository_still_delivers_its_files(world: World, base: str, damage: str) -> None:
    workspace = world.workspace()
    write(workspace / "committed.txt")
    commit_all(workspace)
    write(workspace / "left.txt")
    if damage == "unborn":
        write(workspace / ".git" / "HEAD", "ref: refs/heads/nowhere\n")
    elif damage == "orphan":
        git(workspace, "checkout", "-q", "--orphan", "fresh")
    elif damage == "garbage":
        write(workspace / ".git" / "HEAD", "\0\0garbage")
    elif damage == "missing object":
        tree = git(workspace, "rev-parse", "HEAD^{tree}")
        os.unlink(workspace / ".git" / "objects" / tree[:2] / tree[2:])
    elif damage == "no git":
        shutil.rmtree(workspace / ".git")
    elif damage == "index":
        write(workspace / ".git" / "index", b"DIRC garbage")
    elif damage.startswith("index "):
        os.unlink(workspace / ".git" / "index")
        if damage == "index link":
            os.symlink("/etc/passwd", workspace / ".git" / "index")
        else:
            os.mkfifo(workspace / ".git" / "index")
    else:
        os.unlink(workspace / ".git" / "HEAD")
    published = world.publish(base)
    assert {"committed.txt", "left.txt", "README.md"} <= files_of(world, published.head_oid)
    assert is_complete(world, published.head_oid)
    assert not published.rewritten
    assert bool(published.notices) == (not damage.startswith("index"))


def test_an_emptied_working_tree_is_not_committed(world: World, base: str) -> None:
    for entry in world.workspace().iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    published = world.publish(base)
    assert published.head_oid == base
    assert any("every file is missing" in notice for notice in published.notices)


def test_a_workspace_that_is_gone_is_a_failure_with_its_reason(world: World, base: str) -> None:
    shutil.rmtree(world.workspace())
    with pytest.raises(ShunterError) as caught:
        world.publish(base)
    assert caught.value.code == "PUBLISH_FAILED"
    assert "gone" in caught.value.text


@pytest.mark.parametrize("trick", ["git link", "git file", "refs link", "commondir", "dotdot", "objects link"])
def test_a_workspace_bent_towards_another_repository_cannot_write_there(
    world: World, base: str, user_repo: Path, trick: str
) -> None:
    git_dir = world.workspace() / ".git"
    write(world.workspace() / "left.txt")
    if trick == "git link":
        shutil.rmtree(git_dir)
        os.symlink(user_repo / ".git", git_dir)
    elif trick == "git file":
        shutil.rmtree(git_dir)
        write(git_dir, f"gitdir: {user_repo}/.git\n")
    elif trick == "refs link":
        shutil.rmtree(git_dir / "refs")
        os.symlink(user_repo / ".git" / "refs", git_dir / "refs")
    elif trick == "commondir":
        write(git_dir / "commondir", f"{user_repo}/.git\n")
    elif trick == "dotdot":
        write(git_dir / "HEAD", "ref: refs/heads/../../../../../../user/project/.git/refs/heads/main\n")
    else:
        shutil.rmtree(git_dir / "objects")
        os.symlink(user_repo / ".git" / "objects", git_dir / "objects")
    before = fingerprint(user_repo)
    published = world.publish(base)
    assert "left.txt" in files_of(world, published.head_oid)
    assert fingerprint(user_repo) == before


def test_what_the_agent_does_to_its_own_repository_stays_there(world: World, base: str, user_repo: Path) -> None:
    workspace = world.workspace()
    before = fingerprint(user_repo, Path(world.mirror) / "refs", Path(world.mirror) / "config")
    git(workspace, "remote", "add", "origin", "https://evil.example/x")
    git(workspace, "config", "user.name", "Evil")
    git(workspace, "config", "extensions.unknownThing", "true")
    git(workspace, "config", "core.repositoryFormatVersion", "1")
    git(workspace, "update-ref", "refs/heads/main", base, check=False)
    assert fingerprint(user_repo, Path(world.mirror) / "refs", Path(world.mirror) / "config") == before
    write(workspace / "left.txt")
    assert world.publish(base).leftovers_committed


def test_a_sparse_and_a_split_index_are_understood(world: World, base: str) -> None:
    workspace = world.workspace()
    git(workspace, "sparse-checkout", "set", "dir1")
    write(workspace / "dir1" / "new.txt")
    write(workspace / "outside" / "new.txt")
    published = world.publish(base)
    assert {(each.path, each.status) for each in published.files} == {("dir1/new.txt", "A"), ("outside/new.txt", "A")}
    git(workspace, "sparse-checkout", "disable")
    git(workspace, "update-index", "--split-index")
    write(workspace / "dir1" / "newer.txt")
    again = world.publish(base, published.head_oid)
    assert (again.files_total, again.turn_commits) == (3, 1)


def test_the_changed_list_is_bounded_and_the_count_is_not(world: World, base: str) -> None:
    for number in range(1005):
        write(world.workspace() / f"n{number}")
    write(world.workspace() / "binary", b"\0\1\2")
    published = world.publish(base)
    assert (published.files_total, len(published.files)) == (1006, 1000)
    [binary] = [each for each in compare(world.mirror, base, published.head_oid) if each.path == "binary"]
    assert (binary.added, binary.deleted) == (None, None)


def test_the_mirror_may_be_collected_and_the_workspace_lives(world: World, base: str) -> None:
    write(world.workspace() / "left.txt")
    published = world.publish(base)
    git(Path(world.mirror), "gc", "-q", check=False)
    git(Path(world.mirror), "prune", "--expire=now", check=False)
    git(world.workspace(), "fsck")
    assert git(Path(world.mirror), "rev-parse", f"refs/heads/task/{TASK}") == published.head_oid
