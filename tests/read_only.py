"""A directory that takes no file for a while, as on a file system that became read-only."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def read_only(place: Path) -> Iterator[Callable[[], None]]:
    """For whoever opens a file there from now on, until the function is called."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    aside = place.parent / "read-only"
    aside.mkdir()
    mount = ["mount", "--bind", str(place), str(aside)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no mount here")
    mounted = [aside]

    def unmount() -> None:
        while mounted:
            subprocess.run(["umount", "-l", str(mounted.pop())], check=True)

    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(aside)], check=True)
        subprocess.run(["mount", "--bind", str(aside), str(place)], check=True)
        mounted.append(place)
        yield unmount
    finally:
        unmount()
