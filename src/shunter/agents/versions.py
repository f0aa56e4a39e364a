"""Which versions of an agent's program its adapter was tried with. Another one is told, never refused."""

from __future__ import annotations

import re
from typing import Optional, Tuple

# Oldest and newest. An adapter that is not here was tried with none.
TRIED = {
    "claude": ("2.1.197", "2.1.332"),
    "codex": ("0.171.0", "0.171.0"),
    "copilot": ("1.0.102", "1.0.102"),
    "gemini": ("0.61.0", "0.61.0"),
    "opencode": ("1.18.33", "1.18.33"),
    "qwen": ("0.15.10", "0.15.10"),
}
_NUMBER = re.compile(r"(?<![\d.])(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")


def doubt_version(adapter: str, told: Optional[str]) -> Optional[str]:
    """What is to be said of the version that a program prints; None when nothing is.

    A later patch of the newest release that was tried is taken as that release.
    """
    if adapter not in TRIED or told is None:
        return None
    oldest, newest = TRIED[adapter]
    found = _numbers(told)
    if found is None:
        return f"its version cannot be read: {told[:80]!r}"
    tried = newest if oldest == newest else f"{oldest} to {newest}"
    if found < (_numbers(oldest) or ()):
        return f"it is older than what was tried with shunter ({tried})"
    if found[:2] > (_numbers(newest) or ())[:2]:
        return f"it is newer than what was tried with shunter ({tried})"
    return None


def _numbers(text: str) -> Optional[Tuple[int, ...]]:
    found = _NUMBER.search(text)
    return tuple(int(part or 0) for part in found.groups()) if found else None
