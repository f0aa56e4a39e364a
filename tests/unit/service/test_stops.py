"""Whose quota a task uses, and how a pause is told."""

from __future__ import annotations

import pytest

from shunter.dispatch.stops import how_long
from shunter.service.stops import account_named


@pytest.mark.parametrize(
    ("agent", "profile", "account"),
    [
        ("codex", None, "codex"),
        ("codex", "work", "codex@work"),
        ("exec:make", None, None),
        ("acp:gemini --acp", "work", None),
    ],
)
def test_a_command_line_is_no_account(agent, profile, account):
    assert account_named(agent, profile) == account


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.2, "1 s"),
        (12.0, "12 s"),
        (119.5, "120 s"),
        (120.0, "2 min"),
        (890.0, "15 min"),
        (7200.0, "2 h"),
        (86_300.0, "23 h"),
    ],
)
def test_a_short_pause_is_told_in_seconds(seconds, told):
    assert how_long(seconds) == told
