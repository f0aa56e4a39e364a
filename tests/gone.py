"""Removing a directory tree that living processes still use."""

from __future__ import annotations

import shutil
from pathlib import Path


def take_away(path: Path) -> None:
    """It is gone at once; what is made in it while it is being removed harms nobody."""
    aside = path.with_name(f".{path.name}.gone")
    path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
