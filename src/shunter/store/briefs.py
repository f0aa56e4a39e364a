"""Briefs on disk: `<prompts>/<turn id>`, mode 0600, complete or absent; removed when the task is closed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from ..host.durable import is_full
from ..model.brief import Brief
from ..model.records import Turn
from ..wire.codec import dumps, loads
from ..wire.errors import ShunterError
from ..wire.ids import checked_id, turn_id


def write_brief(directory: Path, of_turn: str, brief: Brief) -> None:
    """Durable when this returns. Raises IO or DISK_FULL, and nothing is left then."""
    path = directory / checked_id(of_turn)
    aside = directory / f".{of_turn}.new"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:  # noqa: PTH123 (with a mode)
            file.write(dumps(brief))
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
    except OSError as exc:
        with contextlib.suppress(OSError):
            aside.unlink()
        code = "DISK_FULL" if is_full(exc) else "IO"
        hint = f"df -h {directory}" if code == "DISK_FULL" else None
        raise ShunterError(code, f"{exc.filename or path}: {exc.strerror}", hint=hint) from exc


def read_brief(directory: Path, of_turn: str) -> Brief:
    path = directory / checked_id(of_turn)
    try:
        return loads(Brief, path.read_bytes(), where=str(path), code="STORE_DAMAGED")
    except OSError as exc:
        raise ShunterError("IO", f"{path}: {exc.strerror}: the prompt of this turn is gone") from exc


def brief_id(turn: Turn) -> str:
    """The turn whose brief is this one's: a repeat has none of its own."""
    return turn_id(turn.task_id, turn.number - turn.repeat_number)


def remove_brief(directory: Path, of_turn: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (directory / checked_id(of_turn)).unlink()


def remove_briefs(directory: Path, turns: Sequence[Turn]) -> None:
    """Of all turns of a task that gets no more, and of a message after them that was given up."""
    for number in range(1, len(turns) + 2):
        remove_brief(directory, turn_id(turns[0].task_id, number))
