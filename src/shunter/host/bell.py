"""Bells: FIFOs at which one process waits and which any other may ring, without a pid and without waiting.

A session's bell is `run/<pid>.bell`, rung with an attempt's id by its supervisor; a supervisor's is `jobs/<id>/bell`,
rung with `cancel`. Nothing depends on a bell alone: whoever rings has left a file first, and whoever waits looks again
from time to time.
"""

from __future__ import annotations

import errno
import os

from .durable import remove

SUFFIX = ".bell"


def open_bell(path: str) -> int:
    """A descriptor that becomes readable when the bell rings. Raises OSError."""
    hung = path + ".new"
    remove(hung)
    os.mkfifo(hung, 0o600)
    # Opened before it has its name: a bell without a listener is one whose listener died. Read-write, because then
    # there is no end of file between two who ring.
    fd = os.open(hung, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    os.rename(hung, path)
    return fd


def heard(fd: int) -> set[str]:
    """The words that were rung since the last call."""
    try:
        return set(os.read(fd, 65536).decode("ascii", "replace").split())
    except OSError:
        return set()


def ring(path: str, word: str) -> bool:
    """Whether somebody listens; a bell whose listener died is taken down."""
    fd = _open_heard(path)
    if fd < 0:
        return False
    try:
        os.write(fd, (word + "\n").encode())
    except OSError:
        pass  # it is full, so it rings already
    finally:
        os.close(fd)
    return True


def _open_heard(path: str) -> int:
    """To ring with; -1 when nobody listens."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as exc:
        if exc.errno == errno.ENXIO:
            remove(path)
        return -1


def ring_sessions(run_dir: str, word: str) -> None:
    """Tell every open session of the host that something changed; nobody listening is no error."""
    for path in _bells(run_dir):
        ring(path, word)


def sweep_bells(run_dir: str) -> None:
    """Take down what killed sessions left, without a sound."""
    for path in _bells(run_dir):
        fd = _open_heard(path)
        if fd >= 0:
            os.close(fd)


def _bells(run_dir: str) -> list[str]:
    try:
        return [os.path.join(run_dir, name) for name in os.listdir(run_dir) if name.endswith(SUFFIX)]
    except OSError:
        return []
