from __future__ import annotations

import json
import shlex

import pytest

from shunter.agents import copilot
from shunter.agents.contract import Turn
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Usage

from .recorded import an_end, recorded, without_changes

ID = "3581539d-f45d-42d3-9bfd-37d350976ede"
RUN = (
    "--output-format json --allow-all --no-ask-user --no-auto-update --disable-client-telemetry "
    "--usage-output-file {last_message}"
)
LAUNCHES = [
    (Turn(), f"copilot {RUN}", None),
    (
        Turn(new_session_id=ID, model="gpt-5.4", effort="high"),
        f"copilot {RUN} --session-id={ID} --model gpt-5.4 --reasoning-effort high",
        ID,
    ),
    (Turn(session_id=ID, new_session_id="0"), f"copilot {RUN} --resume={ID}", ID),
    (Turn(command=("/opt/copilot", "--plain-diff")), f"/opt/copilot --plain-diff {RUN}", None),
]


@pytest.mark.parametrize(("turn", "line", "session_id"), LAUNCHES)
def test_the_command_line(turn: Turn, line: str, session_id: str | None) -> None:
    launch = copilot.launch(turn)
    assert list(launch.argv) == shlex.split(line)
    assert (launch.permission, launch.session_id, launch.wants_schema) == ("unattended", session_id, False)


@pytest.mark.parametrize(
    "turn", [Turn(max_turns=3), Turn(max_budget_usd=1.0), Turn(session_id="a b"), Turn(model="-m")]
)
def test_what_copilot_cannot_do_is_refused(turn: Turn) -> None:
    with pytest.raises(ShunterError) as caught:
        copilot.launch(turn)
    assert caught.value.code == "AGENT_OPTION"


def test_usage_is_that_of_all_models_in_the_written_file() -> None:
    used = {"inputTokens": 200, "outputTokens": 40, "cacheReadTokens": 20, "cacheWriteTokens": 0}
    written = json.dumps({"modelMetrics": {"a": {"usage": used}, "b": {"usage": used}, "c": 3}})
    outcome = copilot.find_outcome(an_end(*recorded("copilot", "success"), last_message=written))
    assert (outcome.usage, outcome.session_id) == (Usage(400, 40, 80), ID)


@pytest.mark.parametrize(
    "written", [None, "", "[]", '{"modelMetrics": []}', '{"modelMetrics": {"a": {"usage": 1}}}', "{" * 99]
)
def test_a_usage_file_that_is_none_leaves_the_usage_open(written: str | None) -> None:
    assert copilot.find_outcome(an_end(*recorded("copilot", "success"), last_message=written)).usage == Usage()


def event(kind: str, **data: object) -> bytes:
    return json.dumps({"type": kind, "data": data}).encode()


WELL = b'{"type":"result","exitCode":0}'
BLOCK = '```shunter-result\n{"status":"done","summary":"Fixed."}\n```'


def test_the_block_of_the_last_message_is_the_result() -> None:
    lines = [event("assistant.message", content=BLOCK), event("assistant.message", content=""), WELL]
    outcome = copilot.find_outcome(an_end(*lines))
    assert (outcome.kind, outcome.structured, outcome.summary) == ("done", True, "Fixed.")


def test_a_helper_of_the_agent_does_not_speak_for_it() -> None:
    lines = [event("assistant.message", content=BLOCK), event("assistant.message", content="x", parentToolCallId="c")]
    assert copilot.find_outcome(an_end(*lines, WELL)).kind == "done"


def test_a_failure_that_a_message_follows_is_forgotten() -> None:
    failure = event("model.call_failure", statusCode=429, errorMessage="Too many requests")
    assert copilot.find_outcome(an_end(failure, event("assistant.message", content=BLOCK), WELL)).kind == "done"
    killed = copilot.find_outcome(without_changes(failure, exit_code=None, signal=15))
    assert (killed.kind, killed.evidence) == ("limit", "the last request failed: 429 Too many requests")


def test_a_limit_says_until_when() -> None:
    outcome = copilot.find_outcome(an_end(*recorded("copilot", "limit"), exit_code=1, at=1000.0))
    assert outcome.limit is not None
    assert outcome.limit.resets_at == 4600.0


@pytest.mark.parametrize(
    ("stderr", "kind", "evidence"),
    [
        (
            b"Error: No authentication information found.\n\nTo sign in, run copilot.\n",
            "auth",
            "No authentication information found.",
        ),
        (
            b"Error: No session, task, or name matched '1'.\n\nTo resume:  copilot --resume=<id>\n",
            "usage_error",
            "session unknown: exit status 1: Error: No session, task, or name matched '1'.",
        ),
        (b"error: unexpected argument '--x' found\n\nFor more information, try '--help'.\n", "usage_error", ""),
    ],
)
def test_an_end_without_an_event(stderr: bytes, kind: str, evidence: str) -> None:
    outcome = copilot.find_outcome(without_changes(exit_code=1, stderr_tail=stderr))
    assert outcome.kind == kind
    assert evidence in outcome.evidence
