"""The base of a task: a commit that stands, or the working tree as it is (`wip`). The repository is only read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from shunter.host.gitrun import run_git
from shunter.host.snapshot import PrivateIndex, Snapshot, Source, Status, parse_status, private_index, status_args
from shunter.host.snapshot import write_tree as write_snapshot
from shunter.wire.errors import ShunterError

from .repository import Repository
from .sensitive import sensitive_reason
from .transfer import Transfer

_IDENTITY = {"NAME": "shunter", "EMAIL": "shunter@localhost"}


@dataclass(frozen=True, slots=True)
class Base:
    """What a task starts from; pinned by id and never resolved again.

    `kind` is "commit" or "wip"; `parent` is the commit that a wip commit stands on. `dirty_count` tracked paths differ
    from HEAD (None: not asked); for a commit they are not part of the base. `untracked` are not captured either; for a
    commit whole directories end in a slash. `notices` are sentences for the user.
    """

    oid: str
    tree: str
    kind: str
    parent: str | None
    dirty_count: int | None
    untracked: tuple[str, ...]
    notices: tuple[str, ...]


def capture_base(
    repo: Repository,
    transfer: Transfer,
    *,
    rev: str | None = None,
    wip: bool = False,
    include: tuple[str, ...] = (),
    count_dirty: bool = True,
) -> Base:
    """Pin the base: HEAD, `rev`, or with `wip` the working tree on top of HEAD.

    `include`: patterns for untracked files (see `compile_pattern`). Raises BASE_NOT_FOUND, BASE_UNAVAILABLE,
    SNAPSHOT_CHANGED, SENSITIVE_PATH, USAGE.
    """
    if not wip:
        return _capture_commit(repo, transfer, rev, count_dirty=count_dirty)
    if rev is not None:
        raise ShunterError("USAGE", "uncommitted work stands on HEAD; it cannot be captured on top of another base")
    return _capture_wip(repo, transfer, include)


def _capture_commit(repo: Repository, transfer: Transfer, rev: str | None, *, count_dirty: bool) -> Base:
    oid, tree = (repo.head_oid, repo.head_tree) if rev is None else _resolve(repo, rev)
    status = _look(repo) if count_dirty else None
    return Base(
        oid=oid,
        tree=tree,
        kind="commit",
        parent=None,
        dirty_count=None if status is None else status.dirty_count,
        untracked=() if status is None else _names(status.untracked + status.nested),
        notices=(),
    )


def _look(repo: Repository) -> Status:
    """Status in the user's repository itself; without optional locks it writes nothing."""
    result = run_git(status_args("normal"), git_dir=repo.git_dir, work_tree=repo.root, user_config=True, own=False)
    return parse_status(result.out)


def _resolve(repo: Repository, rev: str) -> tuple[str, str]:
    if rev.startswith("-") or "\0" in rev:
        raise ShunterError("BASE_NOT_FOUND", f"{rev!r} is no name of a commit")
    args = ["rev-parse", "--verify", "--quiet", rev + "^{commit}"]
    found = run_git(args, git_dir=repo.git_dir, cwd=repo.root, user_config=True, own=False, allowed=())
    if found.status != 0:
        raise ShunterError("BASE_NOT_FOUND", f"{rev!r} does not name a commit of {repo.root}")
    tree = run_git(["rev-parse", found.text + "^{tree}"], git_dir=repo.git_dir, cwd=repo.root, own=False)
    return found.text, tree.text


def _capture_wip(repo: Repository, transfer: Transfer, include: tuple[str, ...]) -> Base:
    patterns = tuple(compile_pattern(each) for each in include)

    def chosen(path: bytes) -> bool:
        return any(pattern.match(os.fsdecode(path)) for pattern in patterns)

    source = Source(
        git_dir=repo.git_dir,
        work_tree=repo.root,
        index=os.path.join(repo.git_dir, "index"),  # noqa: PTH118
        user_config=True,
        own=False,
        objects_dir=transfer.objects_dir,
        lender_dirs=transfer.lenders,
    )
    captured: tuple[bytes, ...]
    with private_index(source) as index:
        first = index.status()
        if first.head != repo.head_oid:
            raise ShunterError("SNAPSHOT_CHANGED", f"HEAD moved from {repo.head_oid} to {first.head} meanwhile")
        _refuse_sensitive([*first.staged, *first.changed, *filter(chosen, first.untracked)], gone=first.deleted)
        if first.is_clean and not any(map(chosen, first.untracked)):
            tree, captured = repo.head_tree, ()  # each file was looked at and is as committed: no torn state
        else:
            taken = write_snapshot(index, choose=chosen, status=first)
            _prove_unchanged(index, taken, look_for_new=bool(patterns), chosen=chosen)
            tree, captured = taken.tree, taken.captured
    left = [path for path in first.untracked if path not in set(captured)]
    notices = [f"left out, a repository of its own: {name!r}" for name in _names(first.nested)]
    for text, pattern in zip(include, patterns, strict=True):
        if not any(pattern.match(os.fsdecode(path)) for path in first.untracked):
            notices.append(f"--include {text} fits no untracked file")
    if tree == repo.head_tree:
        return Base(repo.head_oid, tree, "commit", None, first.dirty_count, _names(left), tuple(notices))
    oid = _commit(repo, transfer, tree)
    return Base(oid, tree, "wip", repo.head_oid, first.dirty_count, _names(left), tuple(notices))


def _prove_unchanged(
    index: PrivateIndex, taken: Snapshot, *, look_for_new: bool, chosen: Callable[[bytes], bool]
) -> None:
    """The second capture. The private index holds the first, so equal trees mean: no file differs from the index."""
    if taken.unreadable:
        raise ShunterError("IO", f"{os.fsdecode(taken.unreadable[0])!r} cannot be read")
    again = index.status(untracked=look_for_new)
    moved = [*again.changed, *again.deleted, *filter(chosen, again.untracked)]
    if moved or again.head != taken.status.head:
        what = repr(os.fsdecode(moved[0])) if moved else "HEAD"
        raise ShunterError(
            "SNAPSHOT_CHANGED", f"{what} changed while the working tree was captured", hint="Try again in a moment."
        )


def _refuse_sensitive(paths: list[bytes], *, gone: tuple[bytes, ...]) -> None:
    for path in dict.fromkeys(paths):
        reason = sensitive_reason(os.fsdecode(path))
        if reason and path not in set(gone):
            raise ShunterError(
                "SENSITIVE_PATH",
                f"{os.fsdecode(path)!r} would leave this machine: {reason}",
                hint="Commit it if it is meant to be shared, ignore it, or leave it out.",
            )


def _commit(repo: Repository, transfer: Transfer, tree: str) -> str:
    env = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in _IDENTITY.items()}
    message = f"Uncommitted work on {repo.head_oid[:12]}\n".encode()
    args = ["commit-tree", "--no-gpg-sign", "-p", repo.head_oid, tree]
    return run_git(args, git_dir=transfer.path, stdin=message, env=env).text


def _names(paths: tuple[bytes, ...] | list[bytes]) -> tuple[str, ...]:
    return tuple(os.fsdecode(path) for path in paths)


@lru_cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern for untracked files, relative to the root of the working tree, in the manner of .gitignore.

    `*` and `?` stop at a slash, `**` does not. Without a slash (other than a last one) it fits at any depth. A
    directory stands for everything below it. Files that the user's ignore rules hide are never offered.
    """
    text = pattern.strip("/")
    if not text:
        raise ShunterError("USAGE", f"an empty include pattern fits nothing: {pattern!r}")
    anchored = "/" in pattern.rstrip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]/]+\])", text)
    translated = "".join(_TRANSLATED.get(part) or (part if _is_class(part) else re.escape(part)) for part in parts)
    return re.compile(("" if anchored else "(?:.*/)?") + translated + r"(?:/.*)?\Z", re.DOTALL)


_TRANSLATED = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


def _is_class(part: str) -> bool:
    return part.startswith("[") and part.endswith("]") and len(part) > 2
