"""The dispatcher's own log: one line an event on standard error, which its starter points at a file."""

from __future__ import annotations

import contextlib
import sys
import time


def log(text: str) -> None:
    """What cannot be written, because the disk is full, is no reason to stop working."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{stamp} {text}\n")
        sys.stderr.flush()
