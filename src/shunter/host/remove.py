"""Removing a directory tree: read-only directories, deep trees, links and mounts included.

Directories are not walked down but lifted: each one met is renamed to the top, so no path grows long and no stack
deep. A mount point cannot be renamed (EBUSY), whatever is mounted there, so nothing beyond one is ever reached.
"""

from __future__ import annotations

import os
import stat
from typing import Dict, List, Optional, Tuple

from ..wire.record import dataclass
from .durable import make_scratch


@dataclass(frozen=True)
class Unremoved:
    """A path below the workspace that is still there, and the system's reason."""

    path: str
    reason: str


def remove_tree(path: str) -> Tuple[Unremoved, ...]:
    """Remove a directory tree; harmless when it is gone. Returns what could not be removed, and goes on with the rest.

    The tree is first moved aside (`.<name>.removing-…` beside it), so half of it is never taken for a workspace; what
    cannot be removed stays there.
    """
    parent, name = os.path.split(os.path.abspath(path))
    left: List[Unremoved] = []
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
        else:
            _make_writable(path)
            aside = make_scratch(parent, f".{name}.removing-")
            try:
                os.rename(path, os.path.join(aside, "0"))
            except OSError:
                os.rmdir(aside)
                raise
    except FileNotFoundError:
        if not os.path.isdir(parent):
            return ()  # somebody was here before us
    except OSError as exc:
        return (Unremoved(path, exc.strerror or str(exc)),)
    for entry in os.listdir(parent):
        if entry.startswith(f".{name}.removing-"):
            left += remove_aside(os.path.join(parent, entry), path)
    return tuple(left)


def remove_aside(aside: str, shown: str) -> List[Unremoved]:
    """Remove `aside` with all in it, also what a killed call left; its directories hold what stood at `shown`."""
    left: List[Unremoved] = []
    _make_writable(aside)
    original: Dict[str, str] = dict.fromkeys(_names(aside, shown, left), shown)
    waiting: List[str] = []
    for name in original:
        try:
            if stat.S_ISDIR(os.lstat(os.path.join(aside, name)).st_mode):
                waiting.append(name)
            else:
                os.unlink(os.path.join(aside, name))
        except OSError as exc:
            left.append(Unremoved(os.path.join(aside, name), exc.strerror or str(exc)))
    call = os.urandom(4).hex()  # no name that an earlier call lifted something to
    count = 0
    while waiting:
        name = waiting.pop()
        directory = os.path.join(aside, name)
        _make_writable(directory)
        for entry in _names(directory, original[name], left):
            full, where = os.path.join(directory, entry), os.path.join(original[name], entry)
            try:
                if not stat.S_ISDIR(os.lstat(full).st_mode):
                    os.unlink(full)
                    continue
                _make_writable(full)
                count += 1
                lifted = f"{call}-{count}"
                os.rename(full, os.path.join(aside, lifted))
                original[lifted] = where
                waiting.append(lifted)
            except OSError as exc:
                _remove_empty(full, where, exc, left)
        _remove_empty(directory, original[name], None, left)
    try:
        os.rmdir(aside)
    except OSError:
        pass  # something is left in it and named in the list
    return left


def _names(directory: str, where: str, left: List[Unremoved]) -> List[str]:
    try:
        return os.listdir(directory)
    except OSError as exc:
        left.append(Unremoved(where, exc.strerror or str(exc)))
        return []


def _remove_empty(directory: str, where: str, cause: Optional[OSError], left: List[Unremoved]) -> None:
    """Remove a directory that should be empty; the first reason why something is in the way is the one reported."""
    try:
        os.rmdir(directory)
    except OSError as exc:
        if cause is not None or not any(each.path.startswith(where) for each in left):
            left.append(Unremoved(where, (cause or exc).strerror or str(cause or exc)))


def _make_writable(directory: str) -> None:
    """Give the owner all rights to a directory; never called on a link."""
    try:
        os.chmod(directory, 0o700)
    except OSError:
        pass  # not ours: the removal itself will say so
