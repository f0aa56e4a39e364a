from __future__ import annotations

import json
import shlex

import pytest

from shunter.agents import opencode
from shunter.agents.contract import Turn
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Usage

from .recorded import an_end, recorded, without_changes

ID = "ses_dd678489fffeCfmv2Mr7kuXdaN"
RUN = "run --format json --auto"
LAUNCHES = [
    (Turn(), f"opencode {RUN}"),
    (
        Turn(permission="unattended", model="anthropic/claude-x", effort="high"),
        f"opencode {RUN} --model anthropic/claude-x --variant high",
    ),
    (Turn(session_id=ID, new_session_id="0"), f"opencode {RUN} --session {ID}"),
    (Turn(command=("/opt/opencode", "--pure")), f"/opt/opencode --pure {RUN}"),
]


@pytest.mark.parametrize(("turn", "line"), LAUNCHES)
def test_the_command_line(turn: Turn, line: str) -> None:
    launch = opencode.launch(turn)
    assert list(launch.argv) == shlex.split(line)
    assert (launch.permission, launch.session_id, launch.wants_schema) == ("unattended", turn.session_id, False)


@pytest.mark.parametrize("turn", [Turn(max_turns=3), Turn(max_budget_usd=1.0), Turn(session_id="-c"), Turn(model="-x")])
def test_what_opencode_cannot_do_is_refused(turn: Turn) -> None:
    with pytest.raises(ShunterError) as caught:
        opencode.launch(turn)
    assert caught.value.code == "AGENT_OPTION"


def test_configured_environment_comes_before_ours() -> None:
    env = opencode.launch(Turn(env={"OPENCODE_DISABLE_SHARE": "0", "A": "b"})).env
    assert env == {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_SHARE": "0", "A": "b"}


def test_usage_is_the_sum_of_the_steps() -> None:
    outcome = opencode.find_outcome(an_end(*recorded("opencode", "success")))
    assert outcome.session_id == ID
    assert outcome.usage == Usage(7689 + 7777 + 7859, 21, 126, pytest.approx(0.023556))
    assert opencode.find_outcome(an_end(b'{"type":"step_finish","part":{}}')).usage == Usage()


def text(words: str, message: str = "m1") -> bytes:
    return json.dumps({"type": "text", "sessionID": ID, "part": {"messageID": message, "text": words}}).encode()


STOP = b'{"type":"step_finish","part":{"reason":"stop","tokens":{"input":5,"output":3}}}'
BLOCK = '```shunter-result\n{"status":"done","summary":"Fixed."}\n```'


def test_the_block_of_the_last_message_is_the_result() -> None:
    outcome = opencode.find_outcome(an_end(text("Well."), text("```shunter", "m2"), text(BLOCK[10:], "m2"), STOP))
    assert (outcome.kind, outcome.structured, outcome.summary) == ("done", True, "Fixed.")
    earlier = opencode.find_outcome(an_end(text(BLOCK), text("And more.", "m2"), STOP))
    assert (earlier.kind, earlier.structured, earlier.summary) == ("unknown", False, "And more.")


def test_the_instruction_repeated_is_no_result() -> None:
    repeated = opencode.prepare_prompt("do it")
    assert "```shunter-result" in repeated and repeated.startswith("do it\n")
    assert not opencode.find_outcome(an_end(text(repeated), STOP)).structured


def test_an_error_that_is_followed_by_work_is_forgotten() -> None:
    error = recorded("opencode", "rate")[0]
    assert opencode.find_outcome(an_end(error, b'{"type":"step_start"}', text(BLOCK), STOP)).kind == "done"
    assert opencode.find_outcome(an_end(text(BLOCK), STOP, error)).kind == "limit"


def test_a_limit_says_when_to_come_back_if_the_provider_did() -> None:
    outcome = opencode.find_outcome(an_end(*recorded("opencode", "rate"), exit_code=1, at=1000.0))
    assert outcome.limit is not None
    assert (outcome.limit.resets_at, outcome.limit.renews) == (1001.0, True)


def test_what_the_agent_writes_about_limits_is_no_limit() -> None:
    outcome = opencode.find_outcome(an_end(text("429: usage limit reached, please log in"), STOP))
    assert outcome.kind == "unknown"


def test_an_unknown_session_is_named_as_such() -> None:
    stderr = b"\x1b[91m\x1b[1mError: \x1b[0mSession not found\n"
    outcome = opencode.find_outcome(without_changes(exit_code=1, stderr_tail=stderr))
    assert (outcome.kind, outcome.evidence) == (
        "usage_error",
        "session unknown: exit status 1: Error: Session not found",
    )


def test_a_hung_provider_leaves_nothing_to_go_by() -> None:
    assert opencode.find_outcome(without_changes(exit_code=None, signal=9)).kind == "crashed"
