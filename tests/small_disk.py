"""A small disk of a test's own, which can be full; only root can have one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system of `size` (as `24m`) in a new directory."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "shunter-test", place], capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"no mount here: {done.stderr.decode().strip()}")

    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)
        place.rmdir()


def fill(place: Path, *, left_kib: int = 0) -> Callable[[], None]:
    """Take every byte that is free but `left_kib`; the function that comes back gives them back."""
    ballast = place / "ballast"
    with ballast.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
        file.truncate(ballast.stat().st_size - left_kib * 1024)
    return ballast.unlink
