"""Cursor by its documentation: these lines were written by hand in the documented form, none was recorded."""

from __future__ import annotations

import json
import shlex

import pytest

from shunter.agents import cursor
from shunter.agents.contract import Event, Turn
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Usage

from .recorded import an_end, without_changes

ID = "c6b62c6f-7ead-4fd6-9922-e952131177ff"
RUN = "-p --output-format stream-json --force --trust"
LAUNCHES = [
    (Turn(), f"cursor-agent {RUN}"),
    (Turn(model="gpt-5", new_session_id="0"), f"cursor-agent {RUN} --model gpt-5"),
    (Turn(session_id=ID), f"cursor-agent {RUN} --resume {ID}"),
    (Turn(command=("/opt/agent",)), f"/opt/agent {RUN}"),
]


@pytest.mark.parametrize(("turn", "line"), LAUNCHES)
def test_the_command_line(turn: Turn, line: str) -> None:
    launch = cursor.launch(turn)
    assert list(launch.argv) == shlex.split(line)
    assert (launch.permission, launch.session_id) == ("unattended", turn.session_id)


@pytest.mark.parametrize(
    "turn", [Turn(max_turns=3), Turn(max_budget_usd=1.0), Turn(effort="high"), Turn(session_id="-f")]
)
def test_what_cursor_cannot_do_is_refused(turn: Turn) -> None:
    with pytest.raises(ShunterError) as caught:
        cursor.launch(turn)
    assert caught.value.code == "AGENT_OPTION"


def line(kind: str, **fields: object) -> bytes:
    return json.dumps({"type": kind, "session_id": ID, **fields}).encode()


def message(text: str) -> bytes:
    return line("assistant", message={"role": "assistant", "content": [{"type": "text", "text": text}]})


INIT = line("system", subtype="init", apiKeySource="login", cwd="/workspace", model="Auto", permissionMode="default")
ASKED = line("user", message={"role": "user", "content": [{"type": "text", "text": "do it"}]})
SHELL = {"args": {"command": "exit 7"}, "result": {"failure": {"exitCode": 7, "stdout": "out\n", "stderr": "err\n"}}}
WRITE = {"args": {"path": "/workspace/a.py", "fileText": "x"}, "result": {"success": {"linesCreated": 1}}}
BLOCK = '```shunter-result\n{"status":"done","summary":"Fixed."}\n```'
USED = {"inputTokens": 30, "outputTokens": 4, "cacheReadTokens": 20, "cacheWriteTokens": 5}


def tool(name: str, call: dict[str, object]) -> list[bytes]:
    begun = {key: value for key, value in call.items() if key != "result"}
    return [
        line("tool_call", subtype="started", call_id="1\n2", tool_call={f"{name}ToolCall": begun}),
        line("tool_call", subtype="completed", call_id="1\n2", tool_call={f"{name}ToolCall": call}),
    ]


def end(text: str, **fields: object) -> bytes:
    return line("result", **{"subtype": "success", "is_error": False, "result": text, **fields})


def test_a_good_end() -> None:
    lines = [
        INIT,
        ASKED,
        message("Let me see."),
        *tool("shell", SHELL),
        message(BLOCK),
        end("Let me see." + BLOCK, usage=USED),
    ]
    outcome = cursor.find_outcome(an_end(*lines))
    assert (outcome.kind, outcome.structured, outcome.summary) == ("done", True, "Fixed.")
    assert (outcome.session_id, outcome.usage, outcome.tool_calls) == (ID, Usage(55, 20, 4), 1)


def test_an_end_without_a_block_is_not_done() -> None:
    assert cursor.find_outcome(an_end(INIT, message("ready"), end("ready"))).kind == "unknown"


@pytest.mark.parametrize(
    ("stderr", "kind"),
    [
        (b"Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY.\n", "auth"),
        (b"You've hit your usage limit for this month.\n", "limit"),
        (b"something else\n", "failed"),
        (b"", "failed"),
    ],
)
@pytest.mark.parametrize("lines", [[], [INIT, ASKED]])
def test_a_failing_run_leaves_its_reason_on_stderr(lines: list[bytes], stderr: bytes, kind: str) -> None:
    assert cursor.find_outcome(without_changes(*lines, exit_code=1, stderr_tail=stderr)).kind == kind


def test_a_result_that_is_an_error() -> None:
    outcome = cursor.find_outcome(an_end(INIT, end("", is_error=True, error="rate limit exceeded"), exit_code=1))
    assert (outcome.kind, outcome.evidence) == ("limit", "the turn failed: rate limit exceeded")


def test_the_events() -> None:
    lines = [INIT, ASKED, *tool("write", WRITE), *tool("shell", SHELL), *tool("read", {"args": {"path": "b"}})]
    shown = [event for each in [*lines, message("Done."), end("Done.")] for event in cursor.read_event(each)]
    assert shown == [
        Event("file", "write", path="/workspace/a.py"),
        Event("command", "exit 7"),
        Event("command", "out\nerr", exit_code=7),
        Event("tool", "read b"),
        Event("message", "Done."),
        Event("usage", "0 tokens in (0 cached), 0 out"),
        Event("end", "completed"),
    ]


@pytest.mark.parametrize("call", [None, [], "x", {}, {"shellToolCall": None}, {"xToolCall": {"args": []}}, {"a": 1}])
def test_a_tool_call_of_another_form(call: object) -> None:
    for subtype in ("started", "completed"):
        assert len(cursor.read_event(line("tool_call", subtype=subtype, tool_call=call))) <= 1
