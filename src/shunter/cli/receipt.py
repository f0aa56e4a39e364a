"""What a command has stored is told by its id, whatever becomes of the command: else it would be said twice."""

from __future__ import annotations

import errno
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..wire.errors import ShunterError
from .entry import IGNORE, RAISE, take_interrupts


class Receipt:
    """From `hold` on, which comes before anything is stored, Ctrl-C waits for `told`."""

    def __init__(self) -> None:
        self._was_interrupted = False

    def hold(self) -> None:
        take_interrupts(self._note)

    def _note(self, number: int, frame: object) -> None:
        self._was_interrupted = True

    @contextmanager
    def told(self, what: str, *, hint: str, fault: ShunterError | None) -> Iterator[None]:
        """Its body prints the id of what is stored, on standard output. Raises INTERRUPTED or IO with `what`.

        `fault` says why no dispatcher goes on with it.
        """
        stored = f"{what} is stored and goes on" if fault is None else f"{what} is stored; {fault.text}"
        try:
            take_interrupts(RAISE)
            if self._was_interrupted:
                raise KeyboardInterrupt
            yield
            sys.stdout.flush()
            if sys.__stdout__ is None:  # it was closed; /dev/null stands for it
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        except KeyboardInterrupt:
            take_interrupts(IGNORE)  # a second one must not take the words
            drop_blocked_output()
            raise ShunterError("INTERRUPTED", stored, hint=hint) from None
        except OSError as exc:
            raise ShunterError("IO", f"{stored}, but its id could not be written: {exc.strerror}", hint=hint) from exc


def drop_blocked_output() -> None:
    """What nobody takes must not keep the command from its end."""
    output = sys.stdout.fileno()
    if not select.select([], [output], [], 0)[1]:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
