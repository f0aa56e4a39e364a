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
    ("gemini", "success", 0, "unknown", "no valid structured result"),
    ("gemini", "command-fails", 0, "unknown", "no valid structured result"),
    ("gemini", "resume-first", 0, "unknown", ""),
    ("gemini", "resume-second", 0, "unknown", ""),
    ("gemini", "limit", 173, "limit", "You have exhausted your daily quota"),
    ("gemini", "invalid-key", 144, "auth", "API key not valid"),
    ("gemini", "401", 145, "auth", "invalid authentication credentials"),
    ("gemini", "cut", 0, "overload", "Model stream ended without a finish reason"),
    ("gemini", "killed", None, "crashed", "killed by signal 15 (SIGTERM)"),
    ("qwen", "success", 0, "unknown", "no valid structured result"),
    ("qwen", "command-fails", 0, "unknown", "no valid structured result"),
    ("qwen", "schema", 0, "done", "the structured result says done"),
    ("qwen", "newer-success", 0, "unknown", "no valid structured result"),
    ("qwen", "newer-schema", 0, "done", "the structured result says done"),
    ("qwen", "resume-first", 0, "unknown", ""),
    ("qwen", "resume-second", 0, "unknown", ""),
    ("qwen", "401", 0, "auth", "[API Error: 401 Incorrect API key provided.]"),
    ("qwen", "401-schema", 1, "auth", "[API Error: 401 Incorrect API key provided.]"),
    ("qwen", "refused", 0, "overload", "[API Error: Connection error. (cause: fetch failed)]"),
    ("qwen", "cut", 0, "overload", "[API Error: Model stream ended without a finish reason.]"),
    ("qwen", "max-turns", 53, "failed", "exit status 53"),
    ("qwen", "retrying", None, "crashed", "killed by signal 15 (SIGTERM)"),
    ("qwen", "killed", None, "crashed", "killed by signal 15 (SIGTERM)"),
    ("copilot", "success", 0, "unknown", "no valid structured result"),
    ("copilot", "command-fails", 0, "unknown", "no valid structured result"),
    ("copilot", "refused-permission", 0, "unknown", "no valid structured result"),
    ("copilot", "resume-first", 0, "unknown", ""),
    ("copilot", "resume-second", 0, "unknown", ""),
    ("copilot", "401", 1, "auth", "Authentication failed with provider"),
    ("copilot", "limit", 1, "limit", "429 The usage limit has been reached. Resets in 1h."),
    ("copilot", "500", 1, "overload", "500 The server had an error"),
    ("copilot", "refused", 1, "overload", "Could not connect to local model provider"),
    ("copilot", "cut", 1, "overload", "missing finish_reason"),
    ("copilot", "killed", None, "crashed", "killed by signal 15 (SIGTERM)"),
    ("acp", "opencode-success", 0, "done", "the structured result says done"),
    ("acp", "opencode-resume", 0, "done", "the structured result says done"),
    ("acp", "opencode-session-unknown", 1, "usage_error", "session unknown: Internal error: OpenCode service failure"),
    ("acp", "opencode-401", 1, "auth", "session/prompt failed: Internal error: Incorrect API key provided."),
    ("acp", "opencode-cancelled", 1, "failed", "the agent says that the turn was cancelled"),
    ("acp", "gemini-success", 0, "done", "the structured result says done"),
    ("acp", "gemini-command-fails", 0, "done", "the structured result says done"),
    ("acp", "gemini-limit", 1, "limit", "You have exhausted your daily quota"),
    ("acp", "qwen-success", 0, "done", "the structured result says done"),
    ("acp", "qwen-balance", 1, "limit", "402 Insufficient Balance"),
    ("acp", "qwen-session-unknown", 1, "usage_error", "session unknown: the agent has nothing of the conversation"),
    ("acp", "copilot-success", 0, "done", "the structured result says done"),
    ("acp", "copilot-ask", 0, "needs_input", "the structured result says needs_input"),
    ("acp", "copilot-401", 0, "unknown", "no valid structured result"),
    ("acp", "claude-code-acp-success", 0, "done", "the structured result says done"),
    ("acp", "claude-code-acp-rejected", 0, "unknown", "no valid structured result"),
]

# Killed before a tool or a message was told.
SILENT = {("opencode", "killed"), ("qwen", "retrying")}


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


@pytest.mark.parametrize(
    ("agent", "case", "calls"),
    [
        ("acp", "gemini-success", 1),
        ("acp", "opencode-success", 1),
        ("claude", "success", 2),
        ("claude", "schema", 1),  # handing in the result is no call
        ("codex", "edit", 2),
        ("copilot", "success", 2),
        ("gemini", "success", 2),
        ("opencode", "success", 2),
        ("qwen", "success", 2),
        *((agent, case, 0) for agent, case, _, kind, _ in ENDS if kind in ("auth", "limit", "overload")),
    ],
)
def test_what_an_agent_called_is_counted(agent: str, case: str, calls: int) -> None:
    assert load(agent).find_outcome(an_end(*recorded(agent, case))).tool_calls == calls


@pytest.mark.parametrize(("agent", "case"), all_recorded())
def test_every_recording_shows_something(agent: str, case: str) -> None:
    events = [event for line in recorded(agent, case) for event in load(agent).read_event(line)]
    kinds = {event.kind for event in events}
    assert events or (agent, case) in SILENT
    assert kinds <= {"message", "thinking", "tool", "command", "file", "prompt", "usage", "error", "notice", "end"}
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
        ("gemini", "success", ["file", "command", "tool", "message", "usage", "end"]),
        ("gemini", "cut", ["error", "usage", "end"]),
        ("qwen", "success", ["file", "tool", "command", "tool", "message", "usage", "end"]),
        ("qwen", "401", ["error", "usage", "end"]),
        ("copilot", "success", ["file", "command", "command:0", "message", "end"]),
        ("copilot", "command-fails", ["command", "command:7", "message", "end"]),
        ("copilot", "401", ["notice", "notice", "error", "end"]),
        ("opencode", "command-fails", ["command", "command:7", "usage", "message", "usage", "end"]),
        ("acp", "opencode-success", ["command", "command:0", "message", "usage", "end"]),
        ("acp", "opencode-cancelled", ["command", "notice", "tool", "usage", "end"]),
        ("acp", "gemini-success", ["command", "message", "usage", "end"]),
        ("acp", "qwen-success", ["usage", "command", "tool", "message", "usage", "end"]),
        ("acp", "qwen-balance", ["error"]),
        ("acp", "copilot-success", ["command", "tool", "message", "usage", "end"]),
        ("acp", "claude-code-acp-rejected", ["file", "notice", "tool", "end"]),
    ],
)
def test_a_recording_is_told_in_the_common_words(agent: str, case: str, shown: list[str]) -> None:
    events = [event for line in recorded(agent, case) for event in load(agent).read_event(line)]
    assert [f"{each.kind}:{each.exit_code}" if each.exit_code is not None else each.kind for each in events] == shown
