from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from shunter.host.remove import remove_tree
from shunter.host.workspace import ensure_workspace
from shunter.wire.errors import ShunterError

from .world import IDENTITY, TASK, World, commit_all, fingerprint, git, write

ODD_NAMES = [
    b" leading space",
    b"-rf",
    b"--help",
    b"new\nline",
    b"tab\tz",
    b'x"y',
    b"back\\slash",
    b"a b/c b/d",
    b"\xff\xfe.t",
    "日本語/ä.md".encode(),
    b"n" * 250,
    b":(glob)*",
    b"#x",
]


def test_odd_names_survive_the_whole_way(world: World, user_repo: Path) -> None:
    for name in ODD_NAMES[::2]:
        write(user_repo / os.fsdecode(name), b"user\n")
    commit_all(user_repo)
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    for name in ODD_NAMES[1::2]:
        write(world.workspace() / os.fsdecode(name), b"agent\n")
    os.unlink(os.fsencode(world.workspace()) + b"/" + ODD_NAMES[0])
    published = world.publish(base)
    assert {(os.fsencode(each.path), each.status) for each in published.files} == {
        *((name, "A") for name in ODD_NAMES[1::2]),
        (ODD_NAMES[0], "D"),
    }


def test_the_identity_is_the_clones_own_whatever_characters_it_has(world: World, user_repo: Path) -> None:
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    assert git(world.workspace(), "config", "user.name") == IDENTITY.name
    write(world.workspace() / "x")
    commit_all(world.workspace())
    assert git(world.workspace(), "log", "-1", "--format=%an <%ae>") == f"{IDENTITY.name} <{IDENTITY.email}>"


def test_there_is_no_remote_and_no_credential_helper(world: World, user_repo: Path, user_home: Path) -> None:
    (user_home / ".gitconfig").open("a").write("[credential]\n\thelper = store\n")
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    assert git(world.workspace(), "remote") == ""
    assert git(world.workspace(), "push", "origin", "HEAD", check=False) == ""
    assert git(world.workspace(), "config", "-z", "--get-all", "credential.helper") == "store\0\0"


def test_hooks_and_templates_of_the_account_do_not_run(world: World, user_repo: Path, user_home: Path) -> None:
    ran = user_home / "ran"
    for place in ("hooks", "template/hooks"):
        for name in ("post-checkout", "pre-receive", "reference-transaction", "post-index-change", "pre-commit"):
            write(user_home / place / name, f"#!/bin/sh\necho {place}/{name} >> {ran}\nexit 1\n").chmod(0o755)
    _, _, base = world.ship(user_repo)
    with (user_home / ".gitconfig").open("a") as config:
        config.write(f"[core]\n\thooksPath = {user_home}/hooks\n\tfsmonitor = {user_home}/hooks/post-checkout\n")
        config.write(f"[init]\n\ttemplateDir = {user_home}/template\n[commit]\n\tgpgSign = true\n")
        config.write("[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = /nonexistent.pub\n")
        config.write(
            '[filter "lfs"]\n\tsmudge = false\n\tclean = false\n\trequired = true\n[core]\n\tautocrlf = true\n'
        )
    repo, transfer, base = world.ship(user_repo)
    world.check_out(base)
    write(world.workspace() / "left")
    published = world.publish(base)
    world.bring_home(repo, transfer, published.head_oid)
    assert not ran.exists()
    assert published.leftovers_committed


def test_line_endings_stay_as_stored_and_one_line_changes_one_line(
    world: World, user_repo: Path, user_home: Path
) -> None:
    (user_home / ".gitconfig").open("a").write("[core]\n\tautocrlf = true\n\teol = crlf\n")
    write(user_repo / "unix.txt", b"a\nb\nc\n")
    write(user_repo / "dos.txt", b"a\r\nb\r\nc\r\n")
    git(user_repo, "-c", "core.autocrlf=false", "add", "-A")
    git(user_repo, "commit", "-qm", "endings")
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    assert (world.workspace() / "unix.txt").read_bytes() == b"a\nb\nc\n"
    assert (world.workspace() / "dos.txt").read_bytes() == b"a\r\nb\r\nc\r\n"
    write(world.workspace() / "dos.txt", b"a\r\nB\r\nc\r\n")
    published = world.publish(base)
    assert (published.files_total, published.insertions, published.deletions) == (1, 1, 1)


def test_a_blob_that_contradicts_its_attributes_is_checked_out_all_the_same(world: World, user_repo: Path) -> None:
    write(user_repo / "dos.txt", b"a\r\nb\r\n")
    commit_all(user_repo)
    write(user_repo / ".gitattributes", "*.txt text eol=lf\n")
    git(user_repo, "add", ".gitattributes")
    git(user_repo, "commit", "-qm", "attributes")
    _, _, base = world.ship(user_repo)
    assert world.check_out(base).created
    published = world.publish(base)
    assert published.head_oid == base


def test_filters_of_the_project_are_not_needed_to_check_out(world: World, user_repo: Path) -> None:
    write(user_repo / ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n*.secret filter=git-crypt\n")
    write(user_repo / "big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    write(user_repo / "a.secret", b"\0GITCRYPT\0abc")
    commit_all(user_repo)
    _, _, base = world.ship(user_repo)
    made = world.check_out(base)
    assert any("Git LFS" in notice for notice in made.notices)
    write(world.workspace() / "b.secret", "plain text\n")
    write(world.workspace() / "c.txt", "fine\n")
    published = world.publish(base)
    assert [each.path for each in published.files] == ["c.txt"]
    assert any("b.secret" in notice for notice in published.left_out)


def test_an_empty_submodule_is_announced(world: World, user_repo: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    shutil.copytree(user_repo, library)
    git(user_repo, "submodule", "add", "-q", str(library), "vendor/my lib")
    os.symlink("vendor/my lib/README.md", user_repo / "link")
    commit_all(user_repo)
    _, _, base = world.ship(user_repo)
    made = world.check_out(base)
    assert made.notices == ("submodule vendor/my lib is not populated",)
    assert world.check_out(base).notices == made.notices
    assert world.publish(base).head_oid == base


def test_a_path_that_does_not_fit_is_named_and_nothing_stays(world: World, user_repo: Path) -> None:
    deep = "d" * 300
    blob = git(user_repo, "rev-parse", "HEAD:README.md")
    git(user_repo, "update-index", "--add", "--cacheinfo", f"100644,{blob},{deep}/file")
    git(user_repo, "commit", "-qm", "deep")
    _, _, base = world.ship(user_repo)
    before = sorted(os.listdir(world.tmp / "host"))
    with pytest.raises(ShunterError) as caught:
        world.check_out(base)
    assert caught.value.code == "CHECKOUT_FAILED"
    assert "dddd" in caught.value.text
    assert sorted(os.listdir(world.workspace().parent)) == [".workspace.lock"]
    assert sorted(set(os.listdir(world.tmp / "host")) - {"tasks"}) == before


def test_an_unknown_base_is_unavailable(world: World, user_repo: Path) -> None:
    world.ship(user_repo)
    with pytest.raises(ShunterError) as caught:
        world.check_out("1" * 40)
    assert caught.value.code == "BASE_UNAVAILABLE"


def test_another_base_at_the_same_place_is_inconsistent_and_nothing_is_touched(world: World, user_repo: Path) -> None:
    _, _, first = world.ship(user_repo)
    world.check_out(first)
    second = commit_all(user_repo)
    world.ship(user_repo, second)
    before = fingerprint(world.workspace())
    with pytest.raises(ShunterError) as caught:
        world.check_out(second)
    assert caught.value.code == "WORKTREE_INCONSISTENT"
    assert fingerprint(world.workspace()) == before


@pytest.mark.parametrize("kind", ["file", "link", "foreign"])
def test_something_else_at_the_place_is_inconsistent(world: World, user_repo: Path, kind: str) -> None:
    _, _, base = world.ship(user_repo)
    place = world.workspace()
    if kind == "file":
        write(place)
    elif kind == "link":
        place.parent.mkdir(parents=True)
        os.symlink(user_repo, place)
    else:
        write(place / "precious.txt")
    with pytest.raises(ShunterError) as caught:
        world.check_out(base)
    assert caught.value.code == "WORKTREE_INCONSISTENT"


def test_a_workspace_that_was_removed_is_made_again(world: World, user_repo: Path) -> None:
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    shutil.rmtree(world.workspace())
    assert world.check_out(base).created


def test_the_agents_configuration_is_not_obeyed_when_the_workspace_is_looked_at_again(
    world: World, user_repo: Path, tmp_path: Path
) -> None:
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    ran = tmp_path / "ran"
    script = write(tmp_path / "evil", f"#!/bin/sh\necho $0 >> {ran}\n")
    script.chmod(0o755)
    workspace = world.workspace()
    for key in ("core.fsmonitor", "core.sshCommand", "filter.x.clean", "filter.x.process", "core.alternateRefsCommand"):
        git(workspace, "config", key, str(script))
    for name in ("post-checkout", "reference-transaction", "pre-commit", "post-index-change", "pre-receive"):
        write(workspace / ".git" / "hooks" / name, script.read_text()).chmod(0o755)
    write(workspace / ".gitattributes", "* filter=x\n")
    write(workspace / "new.txt")
    assert not world.check_out(base).created
    published = world.publish(base)
    assert published.files_total == 2
    assert not ran.exists()


def test_removal_survives_read_only_directories_and_never_leaves_the_tree(world: World, user_repo: Path) -> None:
    _, _, base = world.ship(user_repo)
    world.check_out(base)
    workspace = world.workspace()
    write(workspace / "mod" / "cache" / "file")
    os.symlink("/", workspace / "root")
    os.symlink(user_repo, workspace / "mod" / "user")
    os.symlink("loop", workspace / "loop")
    os.mkfifo(workspace / "pipe")
    os.chmod(workspace / "mod" / "cache" / "file", 0o400)
    os.chmod(workspace / "mod" / "cache", 0o500)
    os.chmod(workspace / "mod", 0)
    before = fingerprint(user_repo)
    assert remove_tree(str(workspace)) == ()
    assert remove_tree(str(workspace)) == ()
    assert sorted(os.listdir(workspace.parent)) == [".workspace.lock"]
    assert fingerprint(user_repo) == before


def test_removal_of_a_tree_deeper_than_a_path_may_be_long(tmp_path: Path) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    descriptor = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("dddd", dir_fd=descriptor)
        inner = os.open("dddd", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    assert remove_tree(str(top)) == ()
    assert os.listdir(tmp_path) == ["user"]


def test_removal_names_what_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "w" / "a" / "stays")
    write(tmp_path / "w" / "b" / "goes")
    unlink = os.unlink

    def refuse(path: str, **options: int) -> None:
        if path.endswith("stays"):
            raise PermissionError(1, "Operation not permitted")
        unlink(path, **options)

    monkeypatch.setattr(os, "unlink", refuse)
    left = remove_tree(str(tmp_path / "w"))
    assert [(each.path, each.reason) for each in left] == [
        (str(tmp_path / "w" / "a" / "stays"), "Operation not permitted")
    ]
    assert not (tmp_path / "w").exists()


def test_two_builders_at_once_make_one_workspace(world: World, user_repo: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    _, _, base = world.ship(user_repo)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: world.check_out(base), range(4)))
    assert sum(each.created for each in made) == 1


def test_a_base_is_found_by_id_even_when_the_branch_went_on(world: World, user_repo: Path) -> None:
    git(user_repo, "tag", "v1")
    first = git(user_repo, "rev-parse", "HEAD~1")
    git(user_repo, "checkout", "-q", "--detach")
    commit_all(user_repo)
    _, _, base = world.ship(user_repo, first)
    ensure_workspace(str(world.workspace()), world.mirror, task_id=TASK, base_oid=base, identity=IDENTITY)
    assert git(world.workspace(), "rev-parse", "HEAD") == first
