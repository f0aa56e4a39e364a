"""Which versions are told as not tried."""

from __future__ import annotations

from typing import Optional

import pytest

from shunter.agents.table import MODULES
from shunter.agents.versions import TRIED, doubt_version


@pytest.mark.parametrize(
    ("adapter", "told", "part"),
    [
        ("claude", "2.1.197 (Claude Code)", None),
        ("claude", "2.1.250 (Claude Code)", None),
        ("claude", "2.1.999 (Claude Code)", None),
        ("claude", "2.2.0 (Claude Code)", "newer than what was tried with shunter (2.1.197 to 2.1.332)"),
        ("claude", "1.0.128 (Claude Code)", "older"),
        ("codex", "codex-cli 0.171.0", None),
        ("codex", "codex-cli 0.172.0-alpha.4", "newer than what was tried with shunter (0.171.0)"),
        ("codex", "codex-cli 0.99.0", "older"),
        ("codex", "codex-cli 1.0", "newer"),
        ("codex", "no number here", "cannot be read"),
        ("codex", "9" * 80, "cannot be read"),
        ("codex", None, None),
        ("cursor", "2026.01.02-abc", None),
        ("exec", "1.2.3", None),
    ],
)
def test_a_version_outside_of_what_was_tried_is_told(adapter: str, told: Optional[str], part: Optional[str]) -> None:
    doubt = doubt_version(adapter, told)
    assert (doubt is None) if part is None else part in str(doubt)


def test_only_adapters_were_tried() -> None:
    assert set(TRIED) <= set(MODULES)
