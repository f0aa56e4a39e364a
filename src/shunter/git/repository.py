"""The user's repository, looked at once: two git commands as a rule, nothing written.

Everything later works on the ids and paths found here. The working tree is named explicitly from then on, because a
linked worktree of a repository whose shared configuration says `core.bare` cannot find itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from shunter.host.gitrun import GitResult, failure_line, run_git
from shunter.wire.errors import ShunterError
from shunter.wire.ids import checked_oid

from .project import digest, name_of, normalise_origin, project_id

_CONFIG = (
    r"^(remote\.origin\.url|extensions\.partialclone|remote\..*\.promisor|core\.sparsecheckout|user\.(name|email))$"
)


@dataclass(frozen=True, slots=True)
class Repository:
    """A working tree and its repository. Paths are absolute and real; `branch` is None when HEAD is detached.

    `repo_id` names the common git directory on this machine, `worktree_id` this checkout, `project_id` the project
    wherever it is checked out. `origin` has its credentials still; only `project_id` may be shown or sent.
    """

    root: str
    git_dir: str
    common_dir: str
    object_format: str
    head_oid: str
    head_tree: str
    branch: str | None
    is_shallow: bool
    is_partial: bool
    is_sparse: bool
    origin: str | None
    user_name: str | None
    user_email: str | None
    name: str
    repo_id: str
    worktree_id: str
    project_id: str

    @property
    def objects_dir(self) -> str:
        return str(Path(self.common_dir, "objects"))


def open_repository(cwd: str) -> Repository:
    """Find the repository around a directory. Its first word on what is wrong is git's own.

    Raises NOT_A_REPOSITORY, UNBORN_HEAD, REPOSITORY_UNSUPPORTED (a bare one), or GIT_FAILED (owned by somebody else).
    In a submodule the submodule is the repository.
    """
    here = os.path.realpath(cwd)
    if not os.path.isdir(here):  # noqa: PTH112 (no error where a directory above may not be entered)
        raise ShunterError("NOT_A_REPOSITORY", f"{cwd} is no directory")
    where = _locate(here)
    git_dir, common_dir, root = where.git_dir, where.common_dir, where.root
    head_oid, head_tree, symbolic = where.head or _head(git_dir, here, root)
    settings = _settings(git_dir, here)
    origin = settings.get("remote.origin.url")
    normal = normalise_origin(origin, relative_to=root) if origin else common_dir
    name = name_of(normal if origin else _directory_name(common_dir))
    return Repository(
        root=root,
        git_dir=git_dir,
        common_dir=common_dir,
        object_format=where.object_format,
        head_oid=head_oid,
        head_tree=head_tree,
        branch=symbolic.removeprefix("refs/heads/") if symbolic.startswith("refs/heads/") else None,
        is_shallow=where.is_shallow,
        is_partial="extensions.partialclone" in settings or any(key.endswith(".promisor") for key in settings),
        is_sparse=settings.get("core.sparsecheckout", "false").lower() in ("true", "1", "yes", "on"),
        origin=origin,
        user_name=settings.get("user.name"),
        user_email=settings.get("user.email"),
        name=name,
        repo_id=digest(common_dir)[:16],
        worktree_id=digest(root)[:16],
        project_id=project_id(name, normal),
    )


def holds_commit(git_dir: str, oid: str) -> bool:
    args = ["cat-file", "-e", checked_oid(oid) + "^{commit}"]
    return run_git(args, git_dir=git_dir, own=False, allowed=()).status == 0


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the repository is; `head` (commit, tree, symbolic name) only when it came with the same answer."""

    git_dir: str
    common_dir: str
    object_format: str
    is_shallow: bool
    root: str
    head: tuple[str, str, str] | None


_WHERE = ("--git-dir", "--git-common-dir", "--show-object-format", "--is-shallow-repository", "--show-toplevel")
_HEAD = ("HEAD^{commit}", "HEAD^{tree}", "--symbolic-full-name", "HEAD")


def _locate(here: str) -> _Place:
    """Ask for everything at once. git prints an answer a line and stops at the first question it cannot answer."""
    found = run_git(["rev-parse", *_WHERE, *_HEAD], cwd=here, user_config=True, own=False, allowed=())
    lines = os.fsdecode(found.out).split("\n")[:-1]
    if found.status != 0 and len(lines) < 4:
        _raise_not_found(here, found)
    head = (lines[5], lines[6], lines[7]) if found.status == 0 and len(lines) == 8 else None
    if not _is_plain(lines):  # a newline in a path: ask for one thing at a time
        lines = [run_git(["rev-parse", each], cwd=here, user_config=True, own=False).text for each in _WHERE]
    git_dir, common_dir = (os.path.realpath(os.path.join(here, each)) for each in lines[:2])  # noqa: PTH118
    root = lines[4] if len(lines) > 4 else _root_of_linked_worktree(git_dir, here)
    return _Place(git_dir, common_dir, lines[2], lines[3] == "true", os.path.realpath(root), head)


def _is_plain(lines: list[str]) -> bool:
    """Whether the answers stand where they should, with no line break inside a path."""
    return lines[2] in ("sha1", "sha256") and lines[3] in ("true", "false") and len(lines) in (4, 5, 8)


def _head(git_dir: str, here: str, root: str) -> tuple[str, str, str]:
    head = run_git(["rev-parse", *_HEAD], git_dir=git_dir, cwd=here, user_config=True, own=False, allowed=())
    if head.status != 0:
        raise _unborn(root, head)
    oid, tree, symbolic = head.text.split("\n")
    return oid, tree, symbolic


def _root_of_linked_worktree(git_dir: str, here: str) -> str:
    """The shared configuration says bare, but a linked worktree still names its directory in its `gitdir` file."""
    try:
        linked = os.fsdecode(Path(git_dir, "gitdir").read_bytes()).rstrip("\n")
    except OSError:
        raise ShunterError(
            "REPOSITORY_UNSUPPORTED",
            f"{here} is in a bare repository, which has no files to start from",
            hint="Run this in a working tree: git worktree add ../work",
        ) from None
    return str(Path(git_dir, linked).parent)


def _directory_name(common_dir: str) -> str:
    """What the repository is called on disk; the same from each of its worktrees."""
    path = Path(common_dir)
    return path.parent.name if path.name == ".git" else path.name.removesuffix(".git")


def _settings(git_dir: str, here: str) -> dict[str, str]:
    args = ["config", "-z", "--get-regexp", _CONFIG]
    found = run_git(args, git_dir=git_dir, cwd=here, user_config=True, own=False, allowed=(0, 1))
    settings: dict[str, str] = {}
    for entry in os.fsdecode(found.out).split("\0")[:-1]:
        key, separator, value = entry.partition("\n")
        if key != "remote.origin.url" or key not in settings:  # of several URLs the first is the one to fetch from
            settings[key] = value if separator else "true"
    return settings


def _raise_not_found(here: str, found: GitResult) -> NoReturn:
    line = failure_line(found.err)
    if b"dubious ownership" in found.err or b"unsafe repository" in found.err:
        where = re.search(rb"(?:ownership in repository at|repository) \(?'([^\n]*?)'", found.err)
        path = os.fsdecode(where[1]) if where else here
        raise ShunterError(
            "GIT_FAILED",
            f"git refuses this repository because somebody else owns it: {line}",
            hint=f"If you trust it: git config --global --add safe.directory '{path}'",
        )
    if b"not a git repository" in found.err:
        raise ShunterError("NOT_A_REPOSITORY", f"{here} is not inside a git repository", hint="git init, then commit")
    raise ShunterError("GIT_FAILED", f"git could not read the repository around {here}: {line}")


def _unborn(root: str, head: GitResult) -> ShunterError:
    if b"unknown revision" in head.err or b"Needed a single revision" in head.err or b"bad revision" in head.err:
        return ShunterError(
            "UNBORN_HEAD", f"{root} has no commit yet (HEAD points to none)", hint="Commit something first."
        )
    return ShunterError("GIT_FAILED", f"HEAD of {root} cannot be read: {failure_line(head.err)}")
