from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .world import World

_CONFIG = """[user]
\tname = Una User
\temail = una@example.org
[init]
\tdefaultBranch = main
"""


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME of the test's own and nothing of git or shunter from outside."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "SHUNTER_")):
            monkeypatch.delenv(name)
    home = tmp_path / "user"
    home.mkdir()
    (home / ".gitconfig").write_text(_CONFIG)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    return home


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Worlds with their data root wherever the test says; each ends with nothing of it left running."""
    made: list[World] = []

    def make(name: str = "world", **options: Any) -> World:
        made.append(World(tmp_path / name, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that no workspace and no data root contains: what agents of tests leave marks in."""
    path = Path(tempfile.mkdtemp(prefix="shunter-test-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)
