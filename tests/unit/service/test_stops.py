"""Whose quota a task uses."""

from __future__ import annotations

import pytest

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
