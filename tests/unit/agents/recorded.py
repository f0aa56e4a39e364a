"""The recorded streams under tests/fixtures, and a short way to say how a turn ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shunter.agents.contract import Ended

STREAMS = Path(__file__).parents[2] / "fixtures" / "agent-streams"


def recorded(agent: str, case: str) -> list[bytes]:
    return (STREAMS / agent / f"{case}.jsonl").read_bytes().splitlines()


def all_recorded() -> list[tuple[str, str]]:
    return sorted((path.parent.name, path.stem) for path in STREAMS.glob("*/*.jsonl"))


def an_end(*lines: bytes, exit_code: int | None = 0, **facts: Any) -> Ended:
    """A turn that committed once and ended with status 0, unless said otherwise."""
    facts = {"stderr_tail": b"", "signal": None, "last_message": None, "commits": 1, "files_changed": ("a.py",)} | facts
    return Ended(lines=lines, exit_code=exit_code, **facts)


def without_changes(*lines: bytes, **facts: Any) -> Ended:
    return an_end(*lines, commits=0, files_changed=(), **facts)
