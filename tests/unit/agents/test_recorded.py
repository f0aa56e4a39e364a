"""Every recorded stream, with the outcome that it must have and the words it must show."""

from __future__ import annotations

import pytest

from shunter.agents.table import load

from .recorded import all_recorded, an_end, recorded, without_changes

# agent, case, exit status, outcome, part of the evidence
ENDS = [
    ("codex", "success", 0, "unknown", "no valid structured result"),
    ("codex", "schema", 0, "done", "the structured result says done"),
    ("codex", "edit", 0, "unknown", "no valid structured result"),
    ("codex", "command-fails", 0, "unknown", "no valid structured result"),
    ("codex", "401", 1, "auth", "unexpected status 401 Unauthorized"),
    ("codex", "limit", 1, "limit", "try again at 11:54 PM."),
    ("codex", "quota", 1, "limit", "Quota exceeded"),
    ("codex", "rate", 1, "limit", "last status: 429 Too Many Requests"),
    ("codex", "500", 1, "overload", "high demand"),
    ("codex", "cut", 1, "overload", "stream disconnected before completion"),
    ("codex", "refused", None, "overload", "waiting for network"),
    ("codex", "no-key", 1, "auth", "Missing environment variable: `SCRIPTED_KEY`."),
    ("codex", "resume-first", 0, "unknown", ""),
    ("codex", "resume-second", 0, "unknown", ""),
    ("codex", "killed", None, "crashed", "killed by signal 15 (SIGTERM)"),
    ("claude", "success", 0, "unknown", "no valid structured result"),
    ("claude", "resume", 0, "unknown", "no valid structured result"),
    ("claude", "schema", 0, "done", "the structured result says done"),
    ("claude", "schema-retried", 0, "done", "the structured result says done"),
    ("claude", "command-fails", 0, "unknown", "no valid structured result"),
    ("claude", "allowed", 0, "unknown", "no valid structured result"),
    ("claude", "cut", 0, "unknown", "no valid structured result"),
    ("claude", "401", 1, "auth", "Invalid API key"),
    ("claude", "limit", 1, "limit", "resets 11:55pm (UTC); five_hour limit, resetsAt 1795996557"),
    ("claude", "limit-epoch", 1, "limit", "Claude AI usage limit reached|1795996557"),
    ("claude", "rate", 1, "limit", "exceed your account's rate limit"),
    ("claude", "credit", 1, "limit", "Credit balance is too low"),
    ("claude", "529", 1, "overload", "529 Overloaded"),
    ("claude", "refused", 1, "overload", "Unable to connect to API"),
    ("claude", "no-login", 1, "auth", "Not logged in"),
    ("claude", "max-turns", 1, "failed", "error_max_turns: Reached maximum number of turns (3)"),
    ("claude", "budget", 1, "failed", "error_max_budget_usd"),
    ("claude", "session-unknown", 1, "usage_error", "session unknown: No conversation found"),
    ("claude", "interrupted", 1, "failed", "aborted_tools"),
    ("claude", "killed", 143, "crashed", "exit status 143 (SIGTERM)"),
    ("claude", "slash", 0, "unknown", ""),
    ("opencode", "success", 0, "unknown", "no valid structured result"),
    ("opencode", "command-fails", 0, "unknown", "no valid structured result"),
    ("opencode", "resume", 0, "unknown", "no valid structured result"),
    ("opencode", "401", 1, "auth", "Incorrect API key provided"),
    ("opencode", "rate", 1, "limit", "Rate limit reached for gpt-x"),
    ("opencode", "quota", 1, "limit", "You exceeded your current quota"),
    ("opencode", "500", 1, "overload", "The server had an error"),
    ("opencode", "refused", 1, "overload", "Cannot connect to API"),
    ("opencode", "unknown-model", 1, "failed", "Unexpected server error"),
    ("opencode", "refused-permission", 0, "failed", "rejected permission"),
    ("opencode", "killed", None, "crashed", "killed by signal 15 (SIGTERM)"),
    ("opencode", "killed-resume", 0, "unknown", ""),
]

# Killed before a tool or a message was told.
SILENT = {("opencode", "killed")}


def test_the_table_names_every_recording() -> None:
    assert {(agent, case) for agent, case, *_ in ENDS} == set(all_recorded())


@pytest.mark.parametrize(("agent", "case", "status", "kind", "evidence"), ENDS)
def test_a_recorded_turn_ends_as_it_did(agent: str, case: str, status: int | None, kind: str, evidence: str) -> None:
    signal = 15 if status is None else None
    outcome = load(agent).find_outcome(an_end(*recorded(agent, case), exit_code=status, signal=signal))
    assert outcome.kind == kind
    assert evidence in outcome.evidence


@pytest.mark.parametrize(("agent", "case"), all_recorded())
def test_no_recording_without_changes_is_done_for_nothing(agent: str, case: str) -> None:
    outcome = load(agent).find_outcome(without_changes(*recorded(agent, case)))
    assert outcome.kind != "done" or outcome.usage.output_tokens


@pytest.mark.parametrize(("agent", "case"), all_recorded())
def test_every_recording_shows_something(agent: str, case: str) -> None:
    events = [event for line in recorded(agent, case) for event in load(agent).read_event(line)]
    kinds = {event.kind for event in events}
    assert events or (agent, case) in SILENT
    assert kinds <= {"message", "thinking", "tool", "command", "file", "usage", "error", "notice", "end"}
    assert all(len(event.text.encode()) <= 4096 for event in events)


@pytest.mark.parametrize(
    ("agent", "case", "shown"),
    [
        ("codex", "success", ["notice", "command", "command:0", "message", "usage", "end"]),
        ("codex", "command-fails", ["notice", "command", "command:7", "message", "usage", "end"]),
        ("codex", "limit", ["error", "end"]),
        ("claude", "success", ["file", "tool", "command", "tool", "message", "usage", "end"]),
        ("claude", "command-fails", ["command", "tool:7", "message", "usage", "end"]),
        ("claude", "limit", ["error", "message", "usage", "end"]),
        ("opencode", "success", ["file", "usage", "command", "command:0", "usage", "message", "usage", "end"]),
        ("opencode", "command-fails", ["command", "command:7", "usage", "message", "usage", "end"]),
    ],
)
def test_a_recording_is_told_in_the_common_words(agent: str, case: str, shown: list[str]) -> None:
    events = [event for line in recorded(agent, case) for event in load(agent).read_event(line)]
    assert [f"{each.kind}:{each.exit_code}" if each.exit_code is not None else each.kind for each in events] == shown
