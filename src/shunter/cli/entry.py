"""The console script: Ctrl-C ends a command quietly from the first moment on, before the rest of it is loaded."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # all of `signal` that is needed; that one would load `enum` first
import os

RAISE = _signal.default_int_handler
IGNORE = _signal.SIG_IGN


def main() -> None:
    take_interrupts(leave_at_once)
    from .main import main as run

    run()


def take_interrupts(handler: object) -> None:
    """By `handler` from here on, unless Ctrl-C is ignored, as in a background job of a script."""
    if _signal.getsignal(_signal.SIGINT) != IGNORE:
        _signal.signal(_signal.SIGINT, handler)


def leave_at_once(number: int, frame: object) -> None:
    """Nothing was begun that would have to be undone, or all of it was."""
    os._exit(130)
