from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shunter.git import capture
from shunter.git.capture import Base, capture_base, compile_pattern
from shunter.git.repository import open_repository
from shunter.git.sensitive import sensitive_reason
from shunter.host import snapshot
from shunter.host.snapshot import Source, private_index
from shunter.wire.errors import ShunterError

from .world import World, a_repository, commit_all, fingerprint, git, write


def take(world: World, where: Path, *, include: tuple[str, ...] = (), wip: bool = True, rev: str | None = None) -> Base:
    """Capture and prove that the repository is as it was, to the byte."""
    before = fingerprint(where)
    repo = open_repository(str(where))
    base = capture_base(repo, world.transfer(repo), wip=wip, include=include, rev=rev)
    assert fingerprint(where) == before
    return base


def changes(world: World, where: Path, base: Base) -> set[str]:
    repo = open_repository(str(where))
    args = ["diff-tree", "-r", "-z", "--name-status", "--no-renames", repo.head_oid, base.oid]
    fields = git(Path(world.transfer(repo).path), *args).split("\0")
    return {f"{kind} {path}" for kind, path in zip(fields[0::2], fields[1::2], strict=False)}


def test_a_clean_tree_is_its_commit(world: World, user_repo: Path) -> None:
    base = take(world, user_repo)
    assert (base.kind, base.oid, base.dirty_count, base.untracked) == (
        "commit",
        git(user_repo, "rev-parse", "HEAD"),
        0,
        (),
    )


def test_a_dirty_tree_is_counted_when_it_is_not_captured(world: World, user_repo: Path) -> None:
    write(user_repo / "README.md", "changed\n")
    git(user_repo, "rm", "-q", "dir1/file 1.txt")
    os.unlink(user_repo / "dir0" / "file 0.txt")
    write(user_repo / "new dir" / "a")
    base = take(world, user_repo, wip=False)
    assert (base.kind, base.dirty_count, base.untracked) == ("commit", 3, ("new dir",))


def test_a_base_is_a_commit_and_nothing_else(world: World, user_repo: Path) -> None:
    git(user_repo, "tag", "-a", "-m", "t", "v1", "HEAD~1")
    assert take(world, user_repo, wip=False, rev="v1").oid == git(user_repo, "rev-parse", "HEAD~1")
    for rev in ("nowhere", "--all", "HEAD:README.md", "HEAD..v1", "", "\0"):
        with pytest.raises(ShunterError) as caught:
            take(world, user_repo, wip=False, rev=rev)
        assert caught.value.code == "BASE_NOT_FOUND"


def test_everything_that_was_changed_and_nothing_else(world: World, user_repo: Path) -> None:
    write(user_repo / "README.md", "changed\n")
    os.chmod(user_repo / "dir1" / "file 1.txt", 0o755)
    os.unlink(user_repo / "dir0" / "file 0.txt")
    write(user_repo / "staged.txt", "staged\n")
    git(user_repo, "add", "staged.txt")
    write(user_repo / "staged.txt", "staged, then changed\n")
    write(user_repo / "intended.txt")
    git(user_repo, "add", "-N", "intended.txt")
    write(user_repo / "untracked.txt")
    write(user_repo / "chosen" / "deep" / "a.py")
    write(user_repo / "chosen" / "-b.py")
    base = take(world, user_repo, include=("chosen/",))
    assert changes(world, user_repo, base) == {
        "M README.md",
        "M dir1/file 1.txt",
        "D dir0/file 0.txt",
        "A staged.txt",
        "A intended.txt",
        "A chosen/deep/a.py",
        "A chosen/-b.py",
    }
    assert base.untracked == ("untracked.txt",)
    assert base.kind == "wip"
    transfer = Path(world.transfer(open_repository(str(user_repo))).path)
    assert git(transfer, "show", f"{base.oid}:staged.txt") == "staged, then changed"
    assert git(transfer, "log", "-1", "--format=%an <%ae> %P", base.oid) == (
        f"shunter <shunter@localhost> {git(user_repo, 'rev-parse', 'HEAD')}"
    )


def test_links_are_links_and_are_never_followed(world: World, user_repo: Path, tmp_path: Path) -> None:
    outside = a_repository(tmp_path / "outside")
    write(outside / "secret.txt", "secret\n")
    os.rename(user_repo / "dir0", user_repo / "moved")
    os.symlink(outside / "dir0", user_repo / "dir0")
    os.symlink("/", user_repo / "root")
    os.symlink("loop", user_repo / "loop")
    base = take(world, user_repo, include=("dir0", "root", "loop", "outside"))
    transfer = Path(world.transfer(open_repository(str(user_repo))).path)
    tree = git(transfer, "ls-tree", "-r", base.oid)
    kinds = {line.split("\t")[1]: line.split()[0] for line in tree.split("\n")}
    assert (kinds["dir0"], kinds["root"], kinds["loop"]) == ("120000",) * 3
    assert not any(path.startswith("dir0/") for path in kinds)


def test_a_same_size_edit_in_the_tick_of_the_index_is_seen(world: World, user_repo: Path) -> None:
    git(user_repo, "config", "core.trustctime", "false")
    git(user_repo, "config", "core.checkStat", "minimal")
    path = write(user_repo / "README.md", "AAAAA\n")
    commit_all(user_repo)
    index = user_repo / ".git" / "index"
    about = path.stat()
    write(path, "BBBBB\n")
    os.utime(path, ns=(about.st_mtime_ns, about.st_mtime_ns))
    os.utime(index, ns=(about.st_mtime_ns, about.st_mtime_ns))
    assert changes(world, user_repo, take(world, user_repo)) == {"M README.md"}


def test_a_lock_of_the_users_git_does_not_matter(world: World, user_repo: Path) -> None:
    write(user_repo / "README.md", "changed\n")
    write(user_repo / ".git" / "index.lock", "")
    assert take(world, user_repo).kind == "wip"


def test_nested_repositories_are_left_out_and_named(world: World, user_repo: Path) -> None:
    for name in ("old templates", "new\nline"):
        (user_repo / name).mkdir()
        git(user_repo / name, "init", "-q")
        write(user_repo / name / "x")
    write(user_repo / "README.md", "changed\n")
    base = take(world, user_repo, include=("*",))
    assert changes(world, user_repo, base) == {"M README.md"}
    assert len([each for each in base.notices if each.startswith("left out")]) == 2


def test_a_conflict_in_the_middle_of_a_merge_is_captured_as_it_lies(world: World, user_repo: Path) -> None:
    git(user_repo, "checkout", "-q", "-b", "side")
    write(user_repo / "README.md", "side\n")
    commit_all(user_repo)
    git(user_repo, "checkout", "-q", "main")
    write(user_repo / "README.md", "main\n")
    commit_all(user_repo)
    git(user_repo, "merge", "side", check=False)
    base = take(world, user_repo)
    transfer = Path(world.transfer(open_repository(str(user_repo))).path)
    assert "<<<<<<<" in git(transfer, "show", f"{base.oid}:README.md")


def test_ignore_rules_and_clean_filters_of_the_user_apply(world: World, user_repo: Path, user_home: Path) -> None:
    with (user_home / ".gitconfig").open("a") as config:
        config.write(f"[core]\n\texcludesFile = {user_home}/ignore\n\tautocrlf = input\n")
        config.write('[filter "upper"]\n\tclean = tr a-z A-Z\n')
    write(user_home / "ignore", "*.tmp\n")
    write(user_repo / ".gitattributes", "*.up filter=upper\n")
    git(user_repo, "add", ".gitattributes")
    git(user_repo, "commit", "-qm", "attributes")
    write(user_repo / "a.up", "lower\n")
    write(user_repo / "b.tmp")
    write(user_repo / "README.md", "crlf\r\n")
    base = take(world, user_repo, include=("*",))
    assert changes(world, user_repo, base) == {"A a.up", "M README.md"}
    transfer = Path(world.transfer(open_repository(str(user_repo))).path)
    assert git(transfer, "show", f"{base.oid}:a.up") == "LOWER"
    assert git(transfer, "cat-file", "-s", f"{base.oid}:README.md") == "5"


def test_hooks_monitors_and_git_variables_of_the_user_do_not_run(
    world: World, user_repo: Path, user_home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    evil = write(tmp_path / "evil", f"#!/bin/sh\necho $0 >> {ran}\nexit 1\n")
    evil.chmod(0o755)
    for name in ("post-index-change", "reference-transaction", "pre-push", "pre-commit", "pre-auto-gc"):
        write(user_repo / ".git" / "hooks" / name, evil.read_text()).chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "diff.external", "gpg.program"):
        git(user_repo, "config", key, str(evil))
    git(user_repo, "config", "commit.gpgsign", "true")
    git(user_repo, "config", "core.splitIndex", "true")
    git(user_repo, "config", "core.untrackedCache", "true")
    git(user_repo, "config", "url./nowhere/.insteadOf", "/")
    git(user_repo, "config", "fetch.prune", "true")
    git(user_repo, "config", "remote.origin.url", "/nowhere")
    (user_home / ".gitconfig").open("a").write('[url "/nowhere/"]\n\tinsteadOf = /\n\tpushInsteadOf = /\n')
    ran.unlink(missing_ok=True)
    write(user_repo / "README.md", "changed\n")
    for name, value in (
        ("GIT_DIR", "/nowhere"),
        ("GIT_INDEX_FILE", "/nowhere"),
        ("GIT_OBJECT_DIRECTORY", "/nowhere"),
        ("GIT_EXTERNAL_DIFF", str(evil)),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "core.bare"),
        ("GIT_CONFIG_VALUE_0", "true"),
        ("GIT_SSH_COMMAND", str(evil)),
    ):
        monkeypatch.setenv(name, value)
    before = fingerprint(user_repo)
    repo = open_repository(str(user_repo))
    base = capture_base(repo, world.transfer(repo), wip=True)
    assert base.kind == "wip"
    repo, transfer, _ = world.ship(user_repo, base.oid)
    world.check_out(base.oid)
    write(world.workspace() / "result")
    head = world.publish(base.oid).head_oid
    assert fingerprint(user_repo) == before
    ref = world.bring_home(repo, transfer, head)
    assert not ran.exists()
    assert Path(user_repo / ".git" / ref).read_text().strip() == head
    assert not (user_repo / ".git" / "FETCH_HEAD").exists()
    assert not (user_repo / ".git" / "logs" / ref).exists()


@pytest.mark.parametrize("what", ["file", "new chosen file", "head", "removed"])
def test_a_tree_that_changes_meanwhile_is_refused(
    world: World, user_repo: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    write(user_repo / "README.md", "changed\n")
    real = capture.write_snapshot

    def and_then_change(*args: object, **options: object) -> snapshot.Snapshot:
        taken = real(*args, **options)  # type: ignore[arg-type]
        if what == "file":
            write(user_repo / "dir1" / "file 1.txt", "meanwhile\n")
        elif what == "removed":
            os.unlink(user_repo / "README.md")
        elif what == "head":
            git(user_repo, "commit", "-q", "--allow-empty", "-m", "meanwhile")
        else:
            write(user_repo / "chosen.py")
        return taken

    monkeypatch.setattr(capture, "write_snapshot", and_then_change)
    repo = open_repository(str(user_repo))
    with pytest.raises(ShunterError) as caught:
        capture_base(repo, world.transfer(repo), wip=True, include=("*.py",))
    assert caught.value.code == "SNAPSHOT_CHANGED"


@pytest.mark.parametrize("name", [".env", "config/.env.local", "deploy/server.pem", "id_rsa", "home/.aws/credentials"])
def test_secrets_are_refused_only_when_the_capture_would_add_them(world: World, user_repo: Path, name: str) -> None:
    write(user_repo / name, "old\n")
    assert take(world, user_repo).untracked == (name,)
    with pytest.raises(ShunterError) as caught:
        take(world, user_repo, include=("*",))
    assert caught.value.code == "SENSITIVE_PATH"
    commit_all(user_repo)
    assert take(world, user_repo).kind == "commit"
    write(user_repo / name, "new\n")
    with pytest.raises(ShunterError) as caught:
        take(world, user_repo)
    assert caught.value.code == "SENSITIVE_PATH"
    os.unlink(user_repo / name)
    assert take(world, user_repo).kind == "wip"
    assert sensitive_reason(".env.example") is None


def test_names_of_any_bytes(world: World, user_repo: Path) -> None:
    names = [b"-rf", b"new\nline", b"\xff\xfe.t", b"tab\tz", b'x"y', "日本語".encode(), b" s ", b"n" * 250, b":(top)x"]
    for name in names:
        write(user_repo / os.fsdecode(name))
    base = take(world, user_repo, include=("*",))
    assert changes(world, user_repo, base) == {"A " + os.fsdecode(name) for name in names}


def test_an_index_that_was_never_written_deletes_nothing_by_itself(world: World, user_repo: Path) -> None:
    os.unlink(user_repo / ".git" / "index")
    write(user_repo / "README.md", "changed\n")
    assert changes(world, user_repo, take(world, user_repo)) == {"M README.md"}


def test_a_submodules_new_commit_is_recorded_and_its_files_are_not_touched(
    world: World, user_repo: Path, tmp_path: Path
) -> None:
    above = a_repository(tmp_path / "user" / "super")
    git(above, "submodule", "add", "-q", str(user_repo), "sub")
    commit_all(above)
    write(above / "sub" / "README.md", "dirty\n")
    assert take(world, above).kind == "commit"
    new = commit_all(above / "sub")
    base = take(world, above)
    transfer = Path(world.transfer(open_repository(str(above))).path)
    assert git(transfer, "rev-parse", f"{base.oid}:sub") == new


def test_the_second_look_uses_the_stat_cache_of_the_first(world: World, user_repo: Path) -> None:
    repo = open_repository(str(user_repo))
    for path in user_repo.rglob("*.txt"):
        os.utime(path, (1, 1))
    source = Source(repo.git_dir, repo.root, str(user_repo / ".git" / "index"), user_config=True, own=False)
    with private_index(source) as index:
        index.status()
        differing = subprocess.run(
            ["git", "diff-files", "--name-only"],
            cwd=user_repo,
            env={**os.environ, "GIT_INDEX_FILE": index.path},
            capture_output=True,
        )
    assert differing.stdout == b""


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("*.py", ["a.py", "b/c.py"], ["a.pyc"]),
        ("src/*.py", ["src/a.py"], ["src/b/a.py", "x/src/a.py"]),
        ("src/**/a.py", ["src/a.py", "src/b/c/a.py"], ["a.py"]),
        ("docs/", ["docs/a", "x/docs/b/c"], ["docsa"]),
        ("/docs", ["docs/a", "docs"], ["x/docs/a"]),
        ("[ab].txt", ["a.txt"], ["c.txt"]),
        ("a+b(c).txt", ["a+b(c).txt"], ["aab(c).txt"]),
        ("**", ["a", "b/c"], []),
    ],
)
def test_include_patterns(pattern: str, fits: list[str], fits_not: list[str]) -> None:
    compiled = compile_pattern(pattern)
    assert [path for path in fits if not compiled.match(path)] == []
    assert [path for path in fits_not if compiled.match(path)] == []
