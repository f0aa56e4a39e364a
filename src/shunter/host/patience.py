"""Waiting for a data root that takes nothing, so that the account of an end is written once it can be.

A disk that is full, a file system that is read-only or answers with I/O errors, a data root that was moved away: each
may be over in a moment or in hours, and what is not written down by then would be a lost turn. A data root that stays
away was removed on purpose; whoever waited for it gives up. One with another host's id is another one.

`os` and `time`, nothing else: see supervisor.
"""

from __future__ import annotations

import errno
import os
import time

from .durable import is_full, is_unusable_disk, remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0
GONE_LIMIT_S = 300.0  # longer than somebody takes to put a directory back who did not mean to move it


def may_pass(exc: OSError) -> bool:
    """Whether writing the same again may do; what stands in the way of one file alone does not go by itself."""
    return is_full(exc) or is_unusable_disk(exc) or exc.errno in _WANTS


_WANTS = (errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def try_to_write(root: str) -> None:
    """Raises the OSError with which a data root takes no file."""
    path = os.path.join(root, "run", ".try." + os.urandom(4).hex())
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    remove(path)


class Patience:
    """Of one process with one data root. Without a `host_id` it is the first one that is seen there."""

    def __init__(
        self,
        root: str,
        host_id: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.root, self.clock, self.sleep = root, clock, sleep
        self.host_id = host_id
        self.stands()
        self.pause_s = FIRST_PAUSE_S
        self.gone_since = -1.0

    def _read_id(self) -> str:
        """Empty where there is none; that of before while nobody can read it, since that is no sign of another."""
        try:
            with open(os.path.join(self.root, "host_id"), "rb", 0) as file:
                return file.read(256).decode("ascii", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        except OSError:
            return self.host_id

    def stands(self) -> bool:
        """Whether the data root is where it was, as far as one can see."""
        found = self._read_id()
        self.host_id = self.host_id or found
        return found == self.host_id != ""

    def is_usable(self) -> bool:
        """Whether files can be written in it; one that is full is."""
        try:
            try_to_write(self.root)
        except OSError as exc:
            return is_full(exc)
        return self.stands()

    def wait(self) -> bool:
        """Until the next try, each time longer; False once the data root has been away for too long."""
        now = self.clock()
        if self.stands():
            self.gone_since = -1.0
        elif self.gone_since < 0:
            self.gone_since = now
        elif now - self.gone_since >= GONE_LIMIT_S:
            return False
        self.sleep(self.pause_s)
        self.pause_s = min(LONGEST_PAUSE_S, self.pause_s * 1.5)
        return True
