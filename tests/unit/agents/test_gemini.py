from __future__ import annotations

import json
import shlex

import pytest

from shunter.agents import gemini
from shunter.agents.contract import Turn
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Usage

from .recorded import an_end, recorded, without_changes

ID = "7f589182-8e71-4b15-b413-8574ad493612"
RUN = "-o stream-json --approval-mode yolo --skip-trust"
LAUNCHES = [
    (Turn(), f"gemini {RUN}", None),
    (Turn(new_session_id=ID, model="gemini-2.5-pro"), f"gemini {RUN} --session-id {ID} --model gemini-2.5-pro", ID),
    (Turn(session_id=ID, new_session_id="0"), f"gemini {RUN} --resume {ID}", ID),
    (Turn(command=("/opt/gemini", "-d")), f"/opt/gemini -d {RUN}", None),
]


@pytest.mark.parametrize(("turn", "line", "session_id"), LAUNCHES)
def test_the_command_line(turn: Turn, line: str, session_id: str | None) -> None:
    launch = gemini.launch(turn)
    assert list(launch.argv) == shlex.split(line)
    assert (launch.permission, launch.session_id, launch.wants_schema) == ("unattended", session_id, False)


@pytest.mark.parametrize(
    "turn", [Turn(max_turns=3), Turn(max_budget_usd=1.0), Turn(effort="high"), Turn(session_id="-r")]
)
def test_what_gemini_cannot_do_is_refused(turn: Turn) -> None:
    with pytest.raises(ShunterError) as caught:
        gemini.launch(turn)
    assert caught.value.code == "AGENT_OPTION"


def test_usage_is_that_of_the_run() -> None:
    first = gemini.find_outcome(an_end(*recorded("gemini", "resume-first")))
    second = gemini.find_outcome(an_end(*recorded("gemini", "resume-second")))
    assert (first.session_id, second.session_id) == (ID, ID)
    assert (first.usage, second.usage) == (Usage(36994, 21, 126), Usage(12614, 7, 42))


def said(*pieces: str) -> list[bytes]:
    return [
        json.dumps({"type": "message", "role": "assistant", "content": each, "delta": True}).encode() for each in pieces
    ]


TOOL = b'{"type":"tool_use","tool_name":"glob","parameters":{}}'
WELL = b'{"type":"result","status":"success","stats":{"output_tokens":7}}'
BLOCK = ("```shunter-res", 'ult\n{"status":"needs_input","summary":"Two.",', '"questions":[{"text":"Which?"}]}\n```\n')


def test_a_message_in_pieces_is_put_together() -> None:
    outcome = gemini.find_outcome(an_end(*said("Let me see."), TOOL, *said(*BLOCK), WELL))
    assert (outcome.kind, outcome.structured, outcome.summary) == ("needs_input", True, "Two.")
    assert [question.text for question in outcome.questions] == ["Which?"]


@pytest.mark.parametrize(
    ("status", "stderr", "kind", "evidence"),
    [
        (41, b"Invalid auth method selected.\n", "auth", "exit status 41: Invalid auth method selected."),
        (55, b"\x1b[31mnot running in a trusted directory\x1b[0m\n", "usage_error", "exit status 55: not running in"),
        (42, b"No input provided via stdin.\n", "usage_error", "exit status 42: No input"),
        (
            42,
            b'Error resuming session: Invalid session identifier "x".\n  Use --list-sessions\n',
            "usage_error",
            "session unknown: exit status 42: Error resuming session",
        ),
        (
            42,
            b"Error resuming session: No previous sessions found for this project.\n",
            "usage_error",
            "session unknown",
        ),
        (52, b"bad settings\n", "failed", "exit status 52: bad settings"),
        (173, b"", "limit", "exit status 173"),
        (145, b"", "auth", "exit status 145"),
        (247, b"", "overload", "exit status 247"),
        (143, b"", "crashed", "SIGTERM"),
    ],
)
def test_an_exit_status_without_an_event(status: int, stderr: bytes, kind: str, evidence: str) -> None:
    outcome = gemini.find_outcome(without_changes(exit_code=status, stderr_tail=stderr))
    assert outcome.kind == kind
    assert evidence in outcome.evidence


def test_a_status_0_without_a_result_is_not_done() -> None:
    assert gemini.find_outcome(without_changes(*recorded("gemini", "killed"))).kind == "no_changes"


def test_a_warning_that_a_good_end_follows_is_forgotten() -> None:
    warning = b'{"type":"error","severity":"warning","message":"Loop detected, rate limit"}'
    assert gemini.find_outcome(an_end(warning, *said(*BLOCK), WELL)).kind == "needs_input"
    assert gemini.find_outcome(an_end(*said(*BLOCK), warning, WELL)).kind == "needs_input"


def test_a_prompt_cannot_be_a_command() -> None:
    assert gemini.prepare_prompt("/quit now").startswith("The task:\n\n/quit now\n\n")
