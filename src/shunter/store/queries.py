# ruff: noqa: PTH100, PTH120, PTH123, PTH208 (pathlib would cost every command its import)
"""Named queries, read from the `.sql` files beside this module.

A query begins at a line `-- name: <name>` and ends at its semicolon; the comment lines in between say what it is for.
"""

from __future__ import annotations

import os

_HERE = os.path.dirname(os.path.abspath(__file__))
_MARK = "-- name: "


def load_queries(folder: str = "sql") -> dict[str, str]:
    """Every query of every file, by its name; a name that is given twice is a bug."""
    found: dict[str, str] = {}
    for file in _sql_files(folder):
        for part in _read(folder, file).split(_MARK)[1:]:
            name, _, text = part.partition("\n")
            assert name not in found, f"query {name} stands twice"
            found[name] = _without_comments(text)
    return found


def load_migrations() -> list[str]:
    """The migration scripts in order; the place in the list, counted from 1, is the schema that a script leads to."""
    names = _sql_files("migrations")
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1)), "a migration is missing"
    return [_read("migrations", name) for name in names]


def _sql_files(folder: str) -> list[str]:
    return sorted(name for name in os.listdir(f"{_HERE}/{folder}") if name.endswith(".sql"))


def _read(folder: str, name: str) -> str:
    with open(f"{_HERE}/{folder}/{name}", encoding="utf-8") as file:
        return file.read()


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("--"))
