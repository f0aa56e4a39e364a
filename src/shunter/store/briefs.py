"""Briefs on disk: `<prompts>/<turn id>`, mode 0600, complete or absent; removed when the task is closed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..host.durable import is_full
from ..model.brief import Brief
from ..wire.codec import dumps, loads
from ..wire.errors import ShunterError
from ..wire.ids import checked_id


def write_brief(directory: Path, turn_id: str, brief: Brief) -> None:
    """Durable when this returns. Raises IO or DISK_FULL, and nothing is left then."""
    path = directory / checked_id(turn_id)
    aside = directory / f".{turn_id}.new"
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


def read_brief(directory: Path, turn_id: str) -> Brief:
    path = directory / checked_id(turn_id)
    try:
        return loads(Brief, path.read_bytes(), where=str(path), code="STORE_DAMAGED")
    except OSError as exc:
        raise ShunterError("IO", f"{path}: {exc.strerror}: the prompt of this turn is gone") from exc


def remove_brief(directory: Path, turn_id: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        (directory / checked_id(turn_id)).unlink()
