"""Removing all that shunter has on a host, and nothing of anybody else's.

What goes is first moved aside by renames, so that a helper which still has a session finds no ledger and makes none:
the data root as a whole to `<data root>.removing-…` beside it. Where that cannot be (the directory above is not the
account's, the data root is a mount point) or files of somebody are in it, what is ours goes to `.removing-…` in the
data root itself, the ledger first; a lock on that directory keeps new helpers out. What an earlier purge moved and did
not get to goes, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from typing import Dict, List, Optional, Sequence

from ..wire.errors import ShunterError
from ..wire.messages import Purged
from .durable import make_scratch
from .layout import ASIDE, OURS
from .remove import remove_aside

_ORDER = ("ledger.db", *(name for name in OURS if name not in ("ledger.db", "jobs")), "jobs")
_ROUNDS = 5  # a session that stood may make a directory anew, until it meets that the ledger is gone


def purge_root(root: str) -> Purged:
    """Remove what shunter has in a data root; harmless when it is gone. Raises OSError when nothing can be moved."""
    names, asides = _names(root), find_asides(root)
    inside = [path for path in asides if os.path.dirname(path) == root]
    ours = [name for name in names if name in OURS]
    has_others = len(names) > len(ours) + len(inside)
    if ours and not inside and not {"bin", "jobs"} <= set(ours):
        raise ShunterError("HOST_INCAPABLE", f"{root} holds something, but is no data root; nothing was removed")
    was_moved = bool(ours) and not has_others and not inside and _move_as_a_whole(root)
    unmoved: Dict[str, str] = {}
    left: List[str] = []
    with contextlib.ExitStack() as locks:
        for _ in range(_ROUNDS):
            is_more = _move_inside(root, unmoved, locks)
            parts = [part for aside in find_asides(root) for part in remove_aside(aside, aside)]
            left = [f"{part.path}: {part.reason}" for part in parts]
            if not is_more:
                break
    left += [f"{os.path.join(root, name)}: {reason}" for name, reason in unmoved.items()]
    stays = None
    if (ours or inside) and not (was_moved or has_others or left):
        try:
            os.rmdir(root)
        except OSError as exc:
            stays = exc.strerror or str(exc)
    return Purged(root, found=bool(ours or asides), has_others=has_others, stays=stays, left=tuple(left))


def is_purged_now(root: str) -> bool:
    """Whether what is ours in a data root is just being moved out of the way and removed."""
    return any(not _try_hold(path, fcntl.LOCK_SH) for path in find_asides(root) if os.path.dirname(path) == root)


def find_asides(root: str) -> List[str]:
    """What purges of this account have moved and not removed yet, beside the data root and in it."""
    parent, name = os.path.split(root)
    found: List[str] = []
    for directory, prefix in ((parent, name + ASIDE), (root, ASIDE)):
        with contextlib.suppress(OSError):
            found += [os.path.join(directory, each) for each in os.listdir(directory) if each.startswith(prefix)]
    return [path for path in found if _is_own_directory(path)]


def _names(root: str) -> Sequence[str]:
    try:
        return os.listdir(root)
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _is_own_directory(path: str) -> bool:
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()


def _move_as_a_whole(root: str) -> bool:
    parent, name = os.path.split(root)
    try:
        aside = make_scratch(parent, name + ASIDE)
    except OSError:
        return False  # whether the data root can be written shows when it is done there
    try:
        os.rename(root, os.path.join(aside, "0"))
    except OSError:
        os.rmdir(aside)
        return False
    return True


def _move_inside(root: str, unmoved: Dict[str, str], locks: contextlib.ExitStack) -> bool:
    """Whether there was anything to move; `unmoved` are names that cannot be, with the reason."""
    names = set(_names(root)) - set(unmoved)
    ours = [name for name in _ORDER if name in names]
    if not ours:
        return False
    aside = make_scratch(root, ASIDE)
    _try_hold(aside, fcntl.LOCK_EX, locks)
    os.mkdir(os.path.join(aside, "0"))
    for name in ours:
        try:
            os.rename(os.path.join(root, name), os.path.join(aside, "0", name))
        except FileNotFoundError:
            pass  # SQLite removes its side files when the last session ends
        except OSError as exc:
            unmoved[name] = exc.strerror or str(exc)
    return True


def _try_hold(path: str, kind: int, locks: Optional[contextlib.ExitStack] = None) -> bool:
    """False while another process holds the directory; kept as long as `locks`. Where nothing can be locked, True."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    with contextlib.ExitStack() as mine:
        (mine if locks is None else locks).callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
    return True
