from __future__ import annotations

import json
from typing import Any

import pytest

from shunter.agents import acp
from shunter.agents.contract import Event, SessionRule, Turn
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Usage

from .recorded import an_end, recorded, without_changes

COMMAND = ("opencode", "acp")
RESULT = '```shunter-result\n{"status": "done", "summary": "Made."}\n```'


def own(kind: str, /, **fields: Any) -> bytes:
    return json.dumps({"shunter": kind, **fields}).encode()


def update(kind: str, /, **fields: Any) -> bytes:
    params = {"sessionId": "s-1", "update": {"sessionUpdate": kind, **fields}}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode()


def said(text: str, **fields: Any) -> bytes:
    return update("agent_message_chunk", content={"type": "text", "text": text}, **fields)


def end(reason: str = "end_turn", **fields: Any) -> bytes:
    return own("end", result={"stopReason": reason, **fields})


SESSION = own("session", sessionId="s-1")


def test_the_host_starts_our_client_with_the_command() -> None:
    launch = acp.launch(Turn(command=COMMAND, env={"A": "b"}, new_session_id="0", permission="workspace"))
    assert launch.argv[:3] == ("{python}", "-I", "-S") and "shunter.host.acp" in launch.argv[4]
    assert launch.argv[5:] == ("{helper}", "workspace", "", *COMMAND)
    assert (launch.env, launch.session_id, launch.wants_schema) == ({"A": "b"}, None, False)
    assert launch.session == SessionRule('"shunter":"session"', "sessionId")
    assert launch.permission == "unattended", "there is no sandbox, whatever requests are answered"


def test_a_follow_up_names_its_session_and_a_command_its_model() -> None:
    launch = acp.launch(Turn(command=("x", "-m={model}"), model="m-1", session_id="s-1", permission="unattended"))
    assert launch.argv[5:] == ("{helper}", "unattended", "s-1", "x", "-m=m-1")
    assert launch.session_id == "s-1"


@pytest.mark.parametrize(
    "wish",
    [
        *({"command": ()}, {"command": ("x", "{model}")}, {"model": "m"}, {"effort": "low"}, {"max_turns": 1}),
        *({"max_budget_usd": 1.0}, {"session_id": "a b"}),
    ],
)
def test_what_it_cannot_do_is_refused(wish: dict[str, Any]) -> None:
    with pytest.raises(ShunterError) as caught:
        acp.launch(Turn(**{"command": COMMAND} | wish))
    assert caught.value.code == "AGENT_OPTION"


def test_the_result_stands_in_the_last_message_however_it_was_cut() -> None:
    lines = [SESSION, said("I begin."), update("tool_call", title="x"), said(RESULT[:20]), said(RESULT[20:]), end()]
    outcome = acp.find_outcome(an_end(*lines))
    assert (outcome.kind, outcome.summary, outcome.session_id, outcome.structured) == ("done", "Made.", "s-1", True)


def test_another_message_does_not_continue_the_one_before() -> None:
    lines = [said("one", messageId="1"), said("two", messageId="2"), end()]
    assert acp.find_outcome(an_end(*lines)).summary == "two"


@pytest.mark.parametrize(
    ("reason", "word"),
    [
        ("max_tokens", "max_tokens"),
        ("max_turn_requests", "max_turn_requests"),
        ("refusal", "refused"),
        ("cancelled", "cancelled"),
        ("new_one", "'new_one'"),
    ],
)
def test_another_end_than_end_turn_is_a_failure_also_with_a_result(reason: str, word: str) -> None:
    outcome = acp.find_outcome(an_end(SESSION, said(RESULT), end(reason), exit_code=1))
    assert (outcome.kind, outcome.structured) == ("failed", False)
    assert word in outcome.evidence


def error(during: str, code: int, message: str, data: Any = None) -> bytes:
    return own("error", during=during, error={"code": code, "message": message, "data": data})


@pytest.mark.parametrize(
    ("line", "kind", "evidence"),
    [
        (
            error("session/new", -32000, "Authentication required"),
            "auth",
            "session/new failed: Authentication required",
        ),
        (error("session/prompt", -32000, "Do it first"), "auth", "session/prompt failed: Do it first"),
        (error("session/prompt", -32000, "rate limit reached"), "limit", ""),
        (
            error("session/prompt", -32603, "Internal error", {"details": "529 overloaded"}),
            "overload",
            "529 overloaded",
        ),
        (error("session/prompt", -32603, "Internal error", "You hit your usage limit"), "limit", ""),
        (error("session/prompt", -32603, "Internal error: x", {"message": "x"}), "failed", "failed: Internal error: x"),
        (error("session/prompt", -32603, ""), "failed", "no reason given"),
        (error("session/load", -32002, "Resource not found"), "usage_error", "session unknown: Resource not found"),
        (error("session/load", -32000, "Sign up first"), "auth", "session/load failed: Sign up first"),
        (error("session/load", -32603, "usage limit reached"), "limit", "session/load failed: usage limit reached"),
        (
            own("error", during="session/load", text="session unknown: no such"),
            "usage_error",
            "session unknown: no such",
        ),
        (own("error", during="initialize", text="version 7"), "usage_error", "version 7"),
        (own("error", during="initialize"), "usage_error", "no reason"),
        (own("error", during="session/prompt", error="boom"), "failed", "session/prompt failed: boom"),
        (own("missing", program="nosuch", text="No such file"), "launch_failed", "nosuch: No such file"),
    ],
)
def test_an_error_of_the_protocol_is_judged(line: bytes, kind: str, evidence: str) -> None:
    outcome = acp.find_outcome(an_end(line, exit_code=1))
    assert outcome.kind == kind
    assert evidence in outcome.evidence
    assert any(event.kind == "error" for event in acp.read_event(line))


def test_what_comes_behind_the_answer_is_no_part_of_its_message() -> None:
    block = '```shunter-result\n{"status": "blocked", "summary": "no key"}\n```'
    outcome = acp.find_outcome(an_end(SESSION, said(block), end(), said(" bye")))
    assert (outcome.kind, outcome.summary) == ("blocked", "no key")


def test_what_the_agent_says_of_limits_is_no_limit() -> None:
    assert acp.find_outcome(an_end(SESSION, said("usage limit reached, not logged in"), end())).kind == "unknown"


def test_an_agent_that_ends_before_its_answer_is_judged_by_its_process() -> None:
    assert acp.find_outcome(an_end(SESSION, exit_code=139)).kind == "crashed"
    assert acp.find_outcome(an_end(exit_code=1, stderr_tail=b"error: unknown option '--acp'")).kind == "usage_error"
    assert acp.find_outcome(an_end(exit_code=1, stderr_tail=b"Please log in")).kind == "auth"
    early = acp.find_outcome(an_end(exit_code=7, stderr_tail=b"unknown option --acp"))
    assert early.kind == "usage_error"
    assert early.evidence == "the agent ended before it opened a session: exit status 7: unknown option --acp"
    late = acp.find_outcome(an_end(SESSION, exit_code=3, stderr_tail=b"usage limit reached"))
    assert (late.kind, late.evidence) == ("failed", "exit status 3: usage limit reached")


@pytest.mark.parametrize(
    ("lines", "usage"),
    [
        (
            [end(usage={"inputTokens": 90, "outputTokens": 20, "totalTokens": 120, "cachedReadTokens": 10})],
            (100, 10, 20),
        ),
        ([end(usage={"inputTokens": 200, "outputTokens": 40, "totalTokens": 240})], (200, None, 40)),
        ([end(usage={"inputTokens": 5, "outputTokens": 4, "thoughtTokens": 3, "totalTokens": 12})], (5, None, 7)),
        ([end(usage={"inputTokens": "5", "outputTokens": -4})], (None, None, None)),
        ([end(_meta={"quota": {"token_count": {"input_tokens": 7, "output_tokens": 8}}})], (7, None, 8)),
        ([said("", _meta={"usage": {"inputTokens": 3, "outputTokens": 2}})] * 2 + [end()], (6, None, 4)),
        ([said("a", _meta={"usage": {"inputTokens": 3}}), end(usage={"inputTokens": 9})], (9, None, None)),
        ([end()], (None, None, None)),
    ],
)
def test_tokens_are_told_in_several_ways(lines: list[bytes], usage: tuple[int | None, ...]) -> None:
    outcome = acp.find_outcome(an_end(*lines))
    assert outcome.usage == Usage(*usage)
    assert outcome.session_usage is None


def test_the_cost_is_the_sessions_so_a_turn_is_told_its_own() -> None:
    cost = update("usage_update", used=1, size=2, cost={"amount": 0.75, "currency": "USD"})
    other = update("usage_update", cost={"amount": 9, "currency": "EUR"})
    outcome = acp.find_outcome(an_end(cost, other, end(), previous_usage=Usage(cost_usd=0.5)))
    assert (outcome.usage.cost_usd, outcome.session_usage) == (0.25, Usage(cost_usd=0.75))


@pytest.mark.parametrize(
    ("line", "events"),
    [
        (said("hello"), [Event("message", "hello")]),
        (said(""), []),
        (update("agent_thought_chunk", content={"type": "text", "text": "hm"}), [Event("thinking", "hm")]),
        (update("user_message_chunk", content={"type": "text", "text": "hm"}), []),
        (update("tool_call", kind="execute", title="Run", rawInput={"command": "make"}), [Event("command", "make")]),
        (update("tool_call", kind="execute", rawInput={"command": ["sh", "-c", "ls"]}), [Event("command", "ls")]),
        (update("tool_call", kind="execute", title="bash", status="pending", rawInput={"cwd": "/w"}), []),
        (update("tool_call", kind="read", title="Reading", status="pending"), [Event("tool", "Reading")]),
        (update("tool_call", kind="edit", locations=[{"path": "/w/a"}]), [Event("file", "edit", path="/w/a")]),
        (update("tool_call", kind="edit", title="Editing"), [Event("tool", "Editing")]),
        (
            update("tool_call_update", kind="execute", status="in_progress", rawInput={"command": "make"}),
            [Event("command", "make")],
        ),
        (update("tool_call_update", status="in_progress", rawInput={"command": "make"}, content=[{}]), []),
        (update("tool_call_update", status="in_progress"), []),
        (update("tool_call_update", status="completed"), []),
        (update("tool_call_update", status="failed"), [Event("tool", "failed")]),
        (update("tool_call_update", status="failed", rawOutput={"message": "no"}), [Event("tool", "no")]),
        (
            update("tool_call_update", status="completed", rawOutput={"metadata": {"exit": 2}}),
            [Event("command", "", exit_code=2)],
        ),
        (
            update(
                "tool_call_update",
                status="completed",
                rawOutput={"exit_code": 0},
                content=[{"type": "content", "content": {"type": "text", "text": "done\n"}}],
            ),
            [Event("command", "done", exit_code=0)],
        ),
        (update("plan", entries=[{"content": "a"}, {"content": "b"}]), [Event("notice", "plan: a; b")]),
        (update("available_commands_update", availableCommands=[]), []),
        (SESSION, []),
        (own("noise", text="warning"), [Event("notice", "warning")]),
        (own("cancel"), [Event("notice", "the agent is told to stop")]),
        (
            own("answer", to="session/request_permission", about="Write x", answer="allow_once", why="because"),
            [Event("notice", "session/request_permission Write x: allow_once (because)")],
        ),
        (end(), [Event("end", "completed")]),
        (end("refusal"), [Event("end", "stopped: refusal")]),
        (b"not of our client", [Event("notice", "not of our client")]),
    ],
)
def test_a_line_in_the_common_words(line: bytes, events: list[Event]) -> None:
    assert acp.read_event(line) == events


def test_an_agent_cannot_speak_for_the_client() -> None:
    """The client hands on no message with its own key, so a line that has both came from nobody."""
    line = update("agent_message_chunk", content={"type": "text", "text": json.dumps({"shunter": "end"})})
    assert acp.find_outcome(without_changes(line, exit_code=1)).kind == "failed"


def test_a_follow_up_tells_its_own_turn_only() -> None:
    outcome = acp.find_outcome(an_end(*recorded("acp", "opencode-resume"), previous_usage=Usage(cost_usd=0.00026)))
    assert outcome.usage == Usage(100, 10, 20, 0.00026)
    assert outcome.session_usage == Usage(cost_usd=0.00052)


def elsewhere(line: bytes) -> bytes:
    return line.replace(b'"sessionId": "s-1"', b'"sessionId": "other-session"')


def test_what_is_said_in_another_session_is_no_message_of_this_turn() -> None:
    lines = [SESSION, said("Working."), elsewhere(said(RESULT)), elsewhere(update("tool_call", title="x")), end()]
    outcome = acp.find_outcome(an_end(*lines))
    assert (outcome.kind, outcome.summary, outcome.tool_calls) == ("unknown", "Working.", 1)
    split = [SESSION, said(RESULT[:20]), elsewhere(said("Hm.")), said(RESULT[20:]), end()]
    assert acp.find_outcome(an_end(*split)).kind == "done"


def test_a_session_whose_name_is_too_long_to_keep_is_its_own() -> None:
    lines = [line.replace(b'"s-1"', b'"%s"' % (b"s" * 500)) for line in (SESSION, said(RESULT), end())]
    assert acp.find_outcome(an_end(*lines)).kind == "done"
