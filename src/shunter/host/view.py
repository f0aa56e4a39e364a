"""A view of a workspace's repository that trusts nothing the agent wrote but data.

Configuration is code: `core.fsmonitor`, filters, a promisor remote's upload-pack or `core.hooksPath` start programs. So
git never runs with the workspace's own git directory once an agent was there, but with a temporary one that has our
configuration, copies of the refs, and the objects of workspace and mirror as lenders.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import FrozenSet, Iterator, List, Optional, Set, Tuple

from ..wire.record import dataclass
from .durable import make_scratch, read_regular
from .gitrun import alternates_line, run_git, write_atomically
from .remove import remove_tree
from .workspace import copy_shallow
from .worktrees import Worktree, linked_worktrees

VIEW_PREFIX = ".view-"
FOREIGN_REFS = "refs/remotes"  # what somebody fetched from another repository stands there
_MAX_REFS = 20_000
_MAX_FILE_BYTES = 16 << 20
_HEAD = re.compile(rb"(ref: refs/[^\n]+|[0-9a-f]{40}|[0-9a-f]{64})\n?\Z")


@dataclass(frozen=True)
class Commit:
    oid: str
    tree: str


@dataclass(frozen=True)
class View:
    """`git_dir` to use instead of the workspace's; `head` is the content of its HEAD when that was usable.

    `tips`: what its refs name, copies of another repository's left out; None when that is not known without git.
    """

    git_dir: str
    workspace: str
    workspace_git_dir: Optional[str]
    head: Optional[bytes]
    tips: Optional[FrozenSet[str]]
    worktrees: Tuple[Worktree, ...]

    def resolve(self, name: str) -> Optional[Commit]:
        """The commit behind a name, or None."""
        args = ["rev-parse", "--revs-only", name + "^{commit}", name + "^{tree}"]
        found = run_git(args, git_dir=self.git_dir, allowed=())
        return Commit(*found.text.split("\n")) if found.status == 0 and found.out.count(b"\n") == 2 else None

    def set_head(self, oid: str) -> None:
        write_atomically(os.path.join(self.git_dir, "HEAD"), oid.encode() + b"\n")


@contextlib.contextmanager
def open_view(
    workspace: str, mirror: str, object_format: str, *, scratch_parent: Optional[str] = None
) -> Iterator[View]:
    """Make the view beside the workspace (same file system, so the index can be renamed into place), or elsewhere."""
    parent = os.path.dirname(os.path.abspath(workspace))
    for entry in os.listdir(parent):  # what a killed publisher left; the caller holds the workspace's lock
        if entry.startswith(VIEW_PREFIX):
            remove_tree(os.path.join(parent, entry))
    git_dir = make_scratch(scratch_parent or parent, VIEW_PREFIX)
    try:
        yield _fill(git_dir, workspace, mirror, object_format)
    finally:
        remove_tree(git_dir)


def _fill(git_dir: str, workspace: str, mirror: str, object_format: str) -> View:
    source = os.path.join(workspace, ".git")
    usable = is_real_directory(source) and is_real_directory(os.path.join(source, "objects"))
    lenders = [os.path.join(mirror, "objects")]
    os.makedirs(os.path.join(git_dir, "objects", "info"))
    os.makedirs(os.path.join(git_dir, "objects", "pack"))
    os.makedirs(os.path.join(git_dir, "refs", "heads"))
    os.makedirs(os.path.join(git_dir, "info"))
    _write(git_dir, "config", _config(object_format))
    head: Optional[bytes] = None
    tips: Optional[FrozenSet[str]] = frozenset()
    if usable:
        lenders.insert(0, os.path.join(source, "objects"))
        content = read_regular(os.path.join(source, "HEAD"), 4096)
        head = content if content is not None and _HEAD.match(content) else None
        tips = _copy_refs(source, git_dir)
        exclude = read_regular(os.path.join(source, "info", "exclude"), 1 << 20)
        _write(git_dir, os.path.join("info", "exclude"), exclude or b"")
    copy_shallow(mirror, git_dir)
    lines = "".join(alternates_line(os.path.realpath(each)) + "\n" for each in lenders)
    _write(git_dir, os.path.join("objects", "info", "alternates"), os.fsencode(lines))
    _write(git_dir, "HEAD", head or b"ref: refs/heads/none\n")
    worktrees = linked_worktrees(source) if is_real_directory(source) else ()
    return View(git_dir, workspace, source if usable else None, head, tips, worktrees)


def _config(object_format: str) -> bytes:
    form = "" if object_format == "sha1" else "[extensions]\n\tobjectFormat = " + object_format + "\n"
    version = 0 if object_format == "sha1" else 1
    core = f"[core]\n\trepositoryformatversion = {version}\n\tbare = false\n\tautocrlf = false\n\teol = lf\n"
    return (core + form).encode()


def _copy_refs(source: str, target: str) -> Optional[FrozenSet[str]]:
    """Copy the refs as files, less those of other repositories; links and anything irregular are passed over. What they
    name."""
    packed = read_regular(os.path.join(source, "packed-refs"), _MAX_FILE_BYTES)
    if packed is not None:
        _write(target, "packed-refs", packed)
    tips: Set[str] = set()
    if not is_real_directory(os.path.join(source, "refs")):
        return None if packed else frozenset()
    copied = 0
    waiting: List[Tuple[str, int]] = [("refs", 0)]
    while waiting and copied < _MAX_REFS:
        name, depth = waiting.pop()
        if name == FOREIGN_REFS:
            continue
        full = os.path.join(source, name)
        if is_real_directory(full):
            if depth < 40:
                waiting += [(os.path.join(name, entry), depth + 1) for entry in os.listdir(full)]
            continue
        content = read_regular(full, 4096)
        if content is not None and not name.endswith(".lock"):
            os.makedirs(os.path.dirname(os.path.join(target, name)), exist_ok=True)
            _write(target, name, content)
            tips.add(os.fsdecode(content.strip()))
            copied += 1
    return None if packed else frozenset(tips)


def _write(directory: str, name: str, data: bytes) -> None:
    with open(os.path.join(directory, name), "wb") as file:
        file.write(data)


def is_real_directory(path: str) -> bool:
    """Whether a directory, and no link to one, stands at the path."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
