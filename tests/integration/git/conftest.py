from __future__ import annotations

import os
from pathlib import Path

import pytest

from .world import World, a_repository

_PLAIN = """[user]
\tname = Una User
\temail = una@example.org
[init]
\tdefaultBranch = main
[protocol "file"]
\tallow = always
"""


@pytest.fixture(autouse=True)
def user_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME of the test's own and no GIT_* variable from outside."""
    for name in list(os.environ):
        if name.startswith("GIT_"):
            monkeypatch.delenv(name)
    home = tmp_path / "user"
    home.mkdir()
    (home / ".gitconfig").write_text(_PLAIN)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    return home


@pytest.fixture
def way(request: pytest.FixtureRequest) -> str:
    """How a result comes home: `fetch`, or `pack` where a module asks for both."""
    return getattr(request, "param", "fetch")


@pytest.fixture
def world(tmp_path: Path, way: str) -> World:
    return World(tmp_path, by_pack=way == "pack")


@pytest.fixture
def user_repo(tmp_path: Path) -> Path:
    return a_repository(tmp_path / "user" / "project")
