"""The dispatcher's own log: one line an event on standard error, which its starter points at a file."""

from __future__ import annotations

import sys
import time


def log(text: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    sys.stderr.write(f"{stamp} {text}\n")
    sys.stderr.flush()
