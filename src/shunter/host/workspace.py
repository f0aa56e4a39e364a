"""The workspace of a task: a clone of its own that borrows objects from the mirror, on branch `task/<id>`.

It is built beside its place and renamed into it, so at the place stands nothing or a finished workspace. A record in
its git directory says what it was made from; one that says something else is never repaired by guessing.

Once an agent has run there, its configuration, hooks and refs are untrusted: nothing here or in `publish` runs git
with the workspace's own configuration again.
"""

from __future__ import annotations

import os
import stat
from typing import List, Optional, Tuple

from ..wire import codec
from ..wire.errors import ShunterError
from ..wire.ids import checked_id, checked_oid
from ..wire.record import dataclass
from .durable import make_scratch, read_regular
from .flock import hold_lock
from .gitrun import GitResult, alternates_line, failure_line, git_disk_code, os_errors, run_git, write_atomically
from .remove import Unremoved, remove_tree
from .snapshot import Status, parse_status, status_args

__all__ = [
    "Identity",
    "Unremoved",
    "Workspace",
    "WorkspaceRecord",
    "ensure_workspace",
    "read_record",
    "remove_tree",
]

RECORD = "shunter-workspace"
_MOVE_AWAY = "look at it and move it away; the next turn makes the workspace anew from the last result"


@dataclass(frozen=True)
class Identity:
    """Author and committer of what is committed for the task."""

    name: str
    email: str


@dataclass(frozen=True)
class WorkspaceRecord:
    """What a workspace was made from; stored in its git directory."""

    task_id: str
    base_oid: str
    mirror: str
    object_format: str


@dataclass(frozen=True)
class Workspace:
    """A workspace that stands; `notices` are sentences for the person and the agent."""

    path: str
    created: bool
    notices: Tuple[str, ...]


def ensure_workspace(
    path: str,
    mirror: str,
    *,
    task_id: str,
    base_oid: str,
    identity: Identity,
    head_oid: Optional[str] = None,
    inherit_credentials: bool = False,
) -> Workspace:
    """Make the workspace, or find the one that was made from the same base; any number of calls is fine.

    `head_oid`: the published result of earlier turns, which a workspace that is gone is made anew from.

    Raises WORKTREE_INCONSISTENT when something else stands there, CHECKOUT_FAILED when the base cannot be checked out
    completely (nothing is left behind), BASE_UNAVAILABLE when the mirror lacks the base.
    `inherit_credentials`: whether git there may use the account's credential helpers.
    """
    object_format = "sha256" if len(checked_oid(base_oid)) == 64 else "sha1"
    record = WorkspaceRecord(checked_id(task_id), base_oid, os.path.realpath(mirror), object_format)
    with os_errors("IO", f"the workspace {path} could not be made"):
        created = _ensure(path, record, identity, head_oid or base_oid, inherit_credentials=inherit_credentials)
    return Workspace(path, created, _notices(path))


def _ensure(
    path: str, record: WorkspaceRecord, identity: Identity, start_oid: str, *, inherit_credentials: bool
) -> bool:
    parent, name = os.path.split(os.path.abspath(path))
    os.makedirs(parent, mode=0o700, exist_ok=True)
    with hold_lock(os.path.join(parent, f".{name}.lock")):
        if _check_standing(path, record):
            return False
        for entry in os.listdir(parent):
            if entry.startswith(f".{name}.building-"):
                remove_tree(os.path.join(parent, entry))
        building = make_scratch(parent, f".{name}.building-")
        try:
            _build(building, record, identity, start_oid, inherit_credentials=inherit_credentials)
            os.rename(building, path)
        except BaseException:
            remove_tree(building)
            raise
    return True


def read_record(path: str) -> Optional[WorkspaceRecord]:
    """The record of the workspace at `path`; None when there is none or it cannot be read."""
    file = os.path.join(path, ".git", RECORD)
    try:
        return codec.loads(WorkspaceRecord, read_regular(file, 65_536) or b"", where=file)
    except ShunterError:
        return None


def _check_standing(path: str, record: WorkspaceRecord) -> bool:
    """False when there is nothing at the path; True for the workspace that was recorded; raises otherwise."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise ShunterError("WORKTREE_INCONSISTENT", f"{path} is no directory", hint=_MOVE_AWAY)
        if not os.listdir(path):
            return False
    except FileNotFoundError:
        return False
    found = read_record(path)
    if found is None:
        text = f"{path} holds files but no record of a workspace"
        raise ShunterError("WORKTREE_INCONSISTENT", text, hint=_MOVE_AWAY)
    if found != record:
        raise ShunterError(
            "WORKTREE_INCONSISTENT",
            f"{path} was made for task {found.task_id} from {found.base_oid}, not for {record.task_id} from"
            f" {record.base_oid}",
        )
    _require_base(record)
    return True


def _require_base(record: WorkspaceRecord) -> None:
    found = run_git(["cat-file", "-e", record.base_oid + "^{commit}"], git_dir=record.mirror, allowed=())
    if found.status != 0:
        raise ShunterError("BASE_UNAVAILABLE", f"commit {record.base_oid} is not in the mirror {record.mirror}")


def _build(
    building: str, record: WorkspaceRecord, identity: Identity, start_oid: str, *, inherit_credentials: bool
) -> None:
    git_dir = os.path.join(building, ".git")
    config = _initial_config(building, record)
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags"):
        os.makedirs(os.path.join(git_dir, name), exist_ok=True)
    write_atomically(os.path.join(git_dir, "HEAD"), f"ref: refs/heads/task/{record.task_id}\n".encode())
    config += _settings(identity, inherit_credentials=inherit_credentials)
    write_atomically(os.path.join(git_dir, "config"), config)
    lender = alternates_line(os.path.join(record.mirror, "objects"))
    write_atomically(os.path.join(git_dir, "objects", "info", "alternates"), os.fsencode(lender) + b"\n")
    copy_shallow(record.mirror, git_dir)
    _checkout(building, record, start_oid)
    write_atomically(os.path.join(git_dir, RECORD), codec.dumps(record).encode() + b"\n")


def _initial_config(building: str, record: WorkspaceRecord) -> bytes:
    """What `git init` writes here once it has looked at the file system; kept for the mirror's next workspaces."""
    kept = os.path.join(record.mirror, "workspace-config")
    found = read_regular(kept, 65_536)
    if found is None:
        form = [] if record.object_format == "sha1" else ["--object-format=" + record.object_format]
        run_git(["init", "--quiet", "--template=", *form, building])
        found = read_regular(os.path.join(building, ".git", "config"), 65_536) or b""
        write_atomically(kept, found)
    return found


def _settings(identity: Identity, *, inherit_credentials: bool) -> bytes:
    """Local configuration: files as they are stored, no garbage collection, the task's identity, no remote at all."""
    lines = [
        "[core]",
        "\tautocrlf = false",
        "\teol = lf",
        "\tlogAllRefUpdates = true",
        "[gc]",
        "\tauto = 0",
        "[maintenance]",
        "\tauto = false",
        "[user]",
        "\tname = " + quote_value(identity.name),
        "\temail = " + quote_value(identity.email),
    ]
    if not inherit_credentials:
        lines += ["[credential]", "\thelper ="]  # an empty value clears the account's list
    return os.fsencode("\n".join(lines) + "\n")


def quote_value(value: str) -> str:
    """A value for a git configuration file; control characters other than newline and tab are dropped."""
    kept = "".join(char for char in value if char in "\n\t" or ord(char) >= 32)
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        kept = kept.replace(plain, escaped)
    return f'"{kept}"'


def copy_shallow(source_git_dir: str, target_git_dir: str) -> None:
    """Give a borrowing repository the lender's history limits, so that both see the same history."""
    try:
        with open(os.path.join(source_git_dir, "shallow"), "rb") as file:
            limits = file.read()
    except FileNotFoundError:
        return
    if limits:
        write_atomically(os.path.join(target_git_dir, "shallow"), limits)


def _checkout(building: str, record: WorkspaceRecord, start_oid: str) -> None:
    """Check the commit out and prove it: exit status, HEAD, and no file that differs."""
    git_dir = os.path.join(building, ".git")
    done = run_git(
        ["reset", "--quiet", "--hard", start_oid, "--"],
        git_dir=git_dir,
        work_tree=building,
        # As many processes as there are processors; for a small tree starting them takes longer than its files.
        config=("checkout.workers=0", "checkout.thresholdForParallelism=1000"),
        allowed=(),
    )
    if done.status != 0:
        _require_base(record)
        raise _checkout_error(done, building)
    # git wrote these files itself a moment ago, so their stat data proves them. Under a later time of the index it does
    # not read all of them again, nor report files whose stored line endings contradict their attributes. The true time
    # is put back: git compares whole seconds, and the agent's first edit may fall into this one.
    index = os.path.join(git_dir, "index")
    true_time_ns = os.stat(index).st_mtime_ns
    later_ns = true_time_ns + 2_000_000_000
    os.utime(index, ns=(later_ns, later_ns))
    status = parse_status(
        run_git(
            status_args("all"), git_dir=git_dir, work_tree=building, optional_locks=False, code="CHECKOUT_FAILED"
        ).out
    )
    os.utime(index, ns=(true_time_ns, true_time_ns))
    fault = _fault(status, start_oid)
    if fault:
        raise ShunterError("CHECKOUT_FAILED", f"commit {start_oid} was not checked out completely: {fault}")


def _fault(status: Status, start_oid: str) -> Optional[str]:
    if status.head != start_oid:
        return f"HEAD is {status.head}"
    for kind, paths in (
        ("is missing", status.deleted),
        ("differs", status.changed),
        ("differs in the index", status.staged),
        ("is not part of it", status.untracked + status.nested),
    ):
        if paths:
            return f"{os.fsdecode(paths[0])!r} {kind} ({len(paths)} in all)"
    return None


def _checkout_error(done: GitResult, building: str) -> ShunterError:
    line = failure_line(done.err).replace(building + "/", "")
    code = git_disk_code(done.err, "CHECKOUT_FAILED")
    return ShunterError(code, f"the base could not be checked out: {line}")


def _notices(path: str) -> Tuple[str, ...]:
    """What an agent would otherwise stumble over: submodules without files, Git LFS pointers."""
    notices: List[str] = []
    modules = os.path.join(path, ".gitmodules")
    if os.path.isfile(modules) and not os.path.islink(modules):
        wanted = r"^submodule\..*\.path$"
        listed = run_git(["config", "-z", "--file", modules, "--get-regexp", wanted], allowed=())
        for entry in listed.out.split(b"\0")[:-1]:
            submodule = entry.partition(b"\n")[2]
            if not _has_files(os.path.join(os.fsencode(path), submodule)):
                notices.append(f"submodule {os.fsdecode(submodule)} is not populated")
    if b"filter=lfs" in (read_regular(os.path.join(path, ".gitattributes"), 1 << 20) or b""):
        notices.append("files under Git LFS are pointers: their contents are not transferred")
    return tuple(notices)


def _has_files(directory: bytes) -> bool:
    try:
        return bool(os.listdir(directory))
    except OSError:
        return False
