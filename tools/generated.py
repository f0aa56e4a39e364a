"""Pages that programs write: those beside this file write theirs, or with --check say whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, text: str) -> None:
    """Write `text` unless --check was given; then end with the command that writes it when the page says otherwise."""
    if "--check" not in sys.argv[1:]:
        page.parent.mkdir(exist_ok=True)
        page.write_text(text)
    elif not page.exists() or page.read_text() != text:
        raise SystemExit(f"{page.name} is not up to date: run .venv/bin/python tools/{Path(sys.argv[0]).name}")
