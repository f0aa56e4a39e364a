"""A lock between processes that dies with its holder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Iterator


@contextlib.contextmanager
def hold_lock(path: str) -> Iterator[int]:
    """Hold an exclusive flock(2) on a file beside what it guards; waits as long as a live process holds it.

    A child that inherits the descriptor holds it too, until it ends.
    The file stays: removing it would let two holders lock two different files of the same name. Each call opens it
    anew, so threads of one process exclude each other too.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def try_lock(path: str) -> Iterator[bool]:
    """The same without waiting: whether it is held now."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            held = False
        yield held
    finally:
        os.close(descriptor)
