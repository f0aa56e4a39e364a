"""Linked worktrees of a workspace's repository, as its git directory names them: further directories with files that no
look at the workspace sees, and with a HEAD that no branch has to name.

An agent can write anything there, so what is not as git makes it is told as a worktree whose place is not known.
"""

from __future__ import annotations

import os
import re
from typing import Optional, Tuple

from ..wire.record import dataclass
from .durable import is_unusable, read_regular

MAX_WORKTREES = 100
_OID = re.compile(rb"([0-9a-f]{64}|[0-9a-f]{40})\s*\Z")


@dataclass(frozen=True)
class Worktree:
    """`directory`: None when it cannot be told; `head`: the commit of a HEAD that is on no branch."""

    name: str
    directory: Optional[str]
    head: Optional[str]

    def place(self, workspace: str) -> Optional[str]:
        """Its directory as seen from the workspace, in full where that is far away; None when it is not there."""
        if self.directory is None or not _may_stand(self.directory):
            return None
        root = os.path.realpath(workspace)
        near = os.path.join(os.path.dirname(root), "")
        return os.path.relpath(self.directory, root) if self.directory.startswith(near) else self.directory

    def unseen(self, workspace: str) -> Optional[str]:
        """In words what of it a look at the workspace does not see; None: nothing of it stands anywhere else."""
        if self.directory is None:
            return f"a linked worktree whose place cannot be told: {self.name!r}"
        place = self.place(workspace)
        return None if place in (None, ".") else f"a linked worktree: {place!r}, which may hold uncommitted files"


def linked_worktrees(git_dir: str) -> Tuple[Worktree, ...]:
    """In the order of their names. Follows no link, and starts no git."""
    listed = os.path.join(git_dir, "worktrees")
    if os.path.islink(listed):
        return (Worktree("worktrees", None, None),)
    try:
        names = sorted(os.listdir(listed))
    except FileNotFoundError:
        return ()
    except OSError as exc:
        if not is_unusable(exc):
            raise
        return (Worktree("worktrees", None, None),)
    found = tuple(_read(os.path.join(listed, name), name) for name in names[:MAX_WORKTREES])
    more = len(names) - len(found)
    return (*found, Worktree(f"{more} more", None, None)) if more else found


def _read(entry: str, name: str) -> Worktree:
    shown = "".join(each if each.isprintable() else "?" for each in name)
    if os.path.islink(entry) or not os.path.isdir(entry):
        return Worktree(shown, None, None)
    head = _OID.match(read_regular(os.path.join(entry, "HEAD"), 4096) or b"")
    oid = head[1].decode() if head else None
    content = (read_regular(os.path.join(entry, "gitdir"), 4096) or b"").rstrip()
    if not content or b"\0" in content:
        return Worktree(shown, None, oid)
    path = os.fsdecode(content[:-5] if content.endswith(b"/.git") else content)
    return Worktree(shown, os.path.realpath(os.path.join(entry, path)), oid)


def _may_stand(directory: str) -> bool:
    try:
        os.lstat(directory)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True
