from __future__ import annotations

import json
import shlex

import pytest

from shunter.agents import qwen
from shunter.agents.contract import Turn
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Usage

from .recorded import an_end, recorded, without_changes

ID = "050ca4bc-2357-45cf-9d36-6af99414e8eb"
RUN = "-o stream-json --approval-mode yolo"
SCHEMA = "--json-schema @{schema}"
LAUNCHES = [
    (Turn(), f"qwen {RUN} {SCHEMA}", None),
    (
        Turn(new_session_id=ID, model="q-1", max_turns=3),
        f"qwen {RUN} --session-id {ID} --model q-1 --max-session-turns 3 {SCHEMA}",
        ID,
    ),
    (Turn(session_id=ID, new_session_id="0"), f"qwen {RUN} --resume {ID} {SCHEMA}", ID),
    (Turn(command=("/opt/qwen", "--auth-type", "openai")), f"/opt/qwen --auth-type openai {RUN} {SCHEMA}", None),
]


@pytest.mark.parametrize(("turn", "line", "session_id"), LAUNCHES)
def test_the_command_line(turn: Turn, line: str, session_id: str | None) -> None:
    launch = qwen.launch(turn)
    assert list(launch.argv) == shlex.split(line)
    assert (launch.permission, launch.session_id, launch.wants_schema) == ("unattended", session_id, True)


@pytest.mark.parametrize(
    "turn", [Turn(effort="high"), Turn(max_budget_usd=1.0), Turn(max_turns=0), Turn(session_id="--x")]
)
def test_what_qwen_cannot_do_is_refused(turn: Turn) -> None:
    with pytest.raises(ShunterError) as caught:
        qwen.launch(turn)
    assert caught.value.code == "AGENT_OPTION"


def test_usage_is_what_the_session_gained() -> None:
    first = qwen.find_outcome(an_end(*recorded("qwen", "resume-first")))
    assert first.session_usage == first.usage == Usage(59425, 21, 126)
    second = qwen.find_outcome(an_end(*recorded("qwen", "resume-second"), previous_usage=first.session_usage))
    assert (second.usage, second.session_usage) == (Usage(30385, 14, 84), Usage(89810, 35, 210))
    assert first.session_id == second.session_id == ID


def result(**fields: object) -> bytes:
    return json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "", **fields}).encode()


def message(text: str) -> bytes:
    return json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}).encode()


def test_the_structured_result_is_the_word_of_the_agent() -> None:
    value = {"status": "blocked", "summary": "No way.", "questions": [], "files_changed": []}
    outcome = qwen.find_outcome(an_end(result(structured_result=value, result=json.dumps(value))))
    assert (outcome.kind, outcome.structured, outcome.summary) == ("blocked", True, "No way.")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[API Error: 401 Incorrect API key provided.]", "auth"),
        ("[API Error: 402 Insufficient Balance]", "limit"),
        ("[API Error: 429 You exceeded your current quota]", "limit"),
        ("half an answer[API Error: Model stream ended without a finish reason.]", "overload"),
        ("[API Error: something else]", "failed"),
        ("The text `[API Error: 401]` is printed now.", "unknown"),
    ],
)
def test_a_good_end_with_an_error_for_a_message(text: str, kind: str) -> None:
    assert qwen.find_outcome(an_end(message(text), result(result=text))).kind == kind


NO_RESULT = "Model produced plain text instead of calling the structured_output tool as required by --json-schema."


def test_a_refused_request_is_not_the_models_fault() -> None:
    outcome = qwen.find_outcome(an_end(*recorded("qwen", "401-schema"), exit_code=1))
    assert (outcome.kind, outcome.evidence) == ("auth", "the turn failed: [API Error: 401 Incorrect API key provided.]")


def test_plain_text_for_a_result_leaves_the_work_open() -> None:
    lines = [message("All done."), result(is_error=True, error={"message": NO_RESULT})]
    outcome = qwen.find_outcome(an_end(*lines, exit_code=1))
    assert (outcome.kind, outcome.summary) == ("unknown", "All done.")
    assert outcome.evidence.startswith("the model handed in no result: Model produced plain text")
    assert qwen.find_outcome(without_changes(*lines, exit_code=1)).kind == "no_changes"


def test_a_result_that_tells_its_error() -> None:
    outcome = qwen.find_outcome(an_end(result(is_error=True, error={"message": "Missing API key"}), exit_code=1))
    assert (outcome.kind, outcome.evidence) == ("auth", "the turn failed: Missing API key")


def test_the_turn_limit_is_told_by_stderr() -> None:
    stderr = b"Reached max session turns for this session.\n"
    outcome = qwen.find_outcome(an_end(*recorded("qwen", "max-turns"), exit_code=53, stderr_tail=stderr))
    assert (outcome.kind, outcome.evidence) == (
        "failed",
        "exit status 53: Reached max session turns for this session.",
    )


def test_an_unknown_session_is_named_as_such() -> None:
    stderr = b"No saved session found with ID 1. Run `qwen --resume` without an ID to choose from existing sessions.\n"
    outcome = qwen.find_outcome(without_changes(exit_code=1, stderr_tail=stderr))
    assert outcome.kind == "usage_error"
    assert outcome.evidence.startswith("session unknown: exit status 1: No saved session found")
