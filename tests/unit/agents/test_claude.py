from __future__ import annotations

import json

import pytest

from shunter.agents import claude
from shunter.agents.contract import Turn
from shunter.agents.result import SCHEMA
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Usage

from .recorded import an_end, recorded, without_changes

ID = "3d0c9c3a-5b1f-4b71-8d33-2f6a4f2b5a11"
HEAD = ("-p", "--output-format", "stream-json", "--verbose")
SCHEMA_WORDS = ("--json-schema", json.dumps(SCHEMA, separators=(",", ":")))
UNATTENDED = (
    "--permission-mode",
    "dontAsk",
    "--allowedTools",
    "Bash,Edit,Glob,Grep,NotebookEdit,Read,Skill,Task,WebFetch,WebSearch,Write",
)
RESULT = {"status": "done", "summary": "Fixed.", "questions": [], "files_changed": []}


def a_result(**fields: object) -> bytes:
    usage = {"input_tokens": 5, "output_tokens": 3}
    return json.dumps({"type": "result", "subtype": "success", "is_error": False, "usage": usage} | fields).encode()


def test_a_first_turn_gets_our_session_id() -> None:
    launch = claude.launch(Turn(new_session_id=ID, permission="unattended"))
    assert launch.argv == ("claude", *HEAD, "--session-id", ID, *UNATTENDED, *SCHEMA_WORDS)
    assert (launch.session_id, launch.permission, launch.wants_schema) == (ID, "unattended", False)


def test_a_resume_names_its_session_and_every_option() -> None:
    turn = Turn(
        command=("/opt/claude", "--strict-mcp-config"),
        session_id=ID,
        new_session_id="ffffffff-0000-0000-0000-000000000000",
        permission="unattended",
        model="opus[1m]",
        effort="max",
        max_turns=30,
        max_budget_usd=0.25,
    )
    options = ("--model", "opus[1m]", "--effort", "max", "--max-turns", "30", "--max-budget-usd", "0.2500")
    assert claude.launch(turn).argv == (
        *("/opt/claude", "--strict-mcp-config"),
        *(*HEAD, "--resume", ID, *UNATTENDED, *options, *SCHEMA_WORDS),
    )


def test_workspace_asks_for_the_sandbox_or_no_start_at_all() -> None:
    argv = claude.launch(Turn()).argv
    sandbox = json.loads(argv[argv.index("--settings") + 1])["sandbox"]
    assert sandbox["enabled"]
    assert sandbox["failIfUnavailable"]
    assert not sandbox["allowUnsandboxedCommands"]
    assert argv[argv.index("--permission-mode") + 1] == "acceptEdits"
    allowed = argv[argv.index("--allowedTools") + 1].split(",")
    assert not {"Edit", "Write"} & set(allowed), "edits outside of the workspace must not be allowed by name"


def test_no_form_needs_the_flag_that_root_may_not_use() -> None:
    for permission in ("workspace", "unattended"):
        assert not any("dangerously" in word for word in claude.launch(Turn(permission=permission)).argv)


def test_configured_environment_wins() -> None:
    env = claude.launch(Turn(env={"DISABLE_AUTOUPDATER": "0", "A": "b"})).env
    assert env == {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "0", "A": "b"}


@pytest.mark.parametrize(
    "turn",
    [
        Turn(session_id="--continue"),
        Turn(new_session_id="a b"),
        Turn(max_turns=0),
        Turn(max_budget_usd=-1.0),
        Turn(max_budget_usd=float("nan")),
        Turn(model=""),
        Turn(effort="HIGH"),
        Turn(permission=""),
    ],
)
def test_a_value_that_is_none_is_refused(turn: Turn) -> None:
    with pytest.raises(ShunterError) as caught:
        claude.launch(turn)
    assert caught.value.code == "AGENT_OPTION"


@pytest.mark.parametrize("prompt", ["/help", "  /clear all", "\n/x"])
def test_a_prompt_that_looks_like_a_command_is_made_text(prompt: str) -> None:
    prepared = claude.prepare_prompt(prompt)
    assert prepared.endswith(prompt)
    assert not prepared.lstrip().startswith("/")


@pytest.mark.parametrize("prompt", ["", "Fix it", "-p", "a /b", "#x"])
def test_any_other_prompt_stays_as_it_is(prompt: str) -> None:
    assert claude.prepare_prompt(prompt) == prompt


def test_the_structured_output_is_the_agents_word() -> None:
    asked = RESULT | {"status": "needs_input", "questions": [{"text": "Which?", "options": ["a", "b"]}]}
    outcome = claude.find_outcome(an_end(a_result(structured_output=asked, result="{}", session_id=ID)))
    assert (outcome.kind, outcome.summary, outcome.structured, outcome.session_id) == (
        "needs_input",
        "Fixed.",
        True,
        ID,
    )
    assert outcome.questions[0].options == ("a", "b")


def test_a_result_in_the_last_message_does_too() -> None:
    assert claude.find_outcome(an_end(a_result(result=json.dumps(RESULT)))).kind == "done"
    block = f"All done.\n```shunter-result\n{json.dumps(RESULT)}\n```\n"
    assert claude.find_outcome(an_end(a_result(result=block))).kind == "done"


@pytest.mark.parametrize("structured", [{}, [], 7, "done", RESULT | {"status": "finished"}, RESULT | {"summary": None}])
def test_a_malformed_result_is_unknown(structured: object) -> None:
    outcome = claude.find_outcome(an_end(a_result(structured_output=structured, result="ok")))
    assert (outcome.kind, outcome.structured, outcome.summary) == ("unknown", False, "ok")


def test_giving_up_on_the_result_is_no_failed_turn() -> None:
    line = a_result(subtype="error_max_structured_output_retries", is_error=True)
    assert claude.find_outcome(an_end(line)).kind == "unknown"
    assert claude.find_outcome(without_changes(line)).kind == "no_changes"


@pytest.mark.parametrize("flag", ["false", "true", None, 0, 1, [], {}])
def test_a_flag_of_another_type_leaves_it_to_the_exit_status(flag: object) -> None:
    line = a_result(is_error=flag, result="ok")
    assert claude.find_outcome(an_end(line)).kind == "unknown"
    assert claude.find_outcome(without_changes(line)).kind == "no_changes"
    assert claude.find_outcome(an_end(line, exit_code=1)).kind == "failed"
    assert claude.find_outcome(an_end(a_result(is_error=flag, structured_output=RESULT))).kind == "done"


def test_an_unknown_command_of_the_cli_is_never_done() -> None:
    assert claude.find_outcome(without_changes(*recorded("claude", "slash"))).kind == "no_changes"


def test_status_0_after_an_api_error_is_that_error() -> None:
    for case, kind in [("401", "auth"), ("limit", "limit"), ("529", "overload"), ("credit", "limit")]:
        lines = recorded("claude", case)
        assert claude.find_outcome(an_end(*lines, exit_code=0)).kind == kind
        assert claude.find_outcome(an_end(*lines[:-1], exit_code=0)).kind == kind, "even when the last line is lost"


def test_a_limit_told_as_a_success_is_a_limit() -> None:
    told = {"model": "<synthetic>", "content": [{"type": "text", "text": "Claude AI usage limit reached|1751385600"}]}
    lines = [json.dumps({"type": "assistant", "message": told}).encode(), a_result(result=told["content"][0]["text"])]
    outcome = claude.find_outcome(an_end(*lines))
    assert (outcome.kind, "1751385600" in outcome.evidence) == ("limit", True)


def test_limits_in_the_agents_own_words_do_not_count() -> None:
    words = "You've hit your limit \u00b7 resets 11:55pm (UTC). Please run /login. API Error: 529 Overloaded"
    tool = {"type": "tool_result", "content": words, "is_error": True}
    lines = [
        json.dumps({"type": "assistant", "message": {"model": "opus", "content": [{"type": "text", "text": words}]}}),
        json.dumps({"type": "user", "message": {"content": [tool]}}),
    ]
    raw = [line.encode() for line in lines]
    assert claude.find_outcome(an_end(*raw, a_result(result=words), stderr_tail=words.encode())).kind == "unknown"
    assert claude.find_outcome(an_end(*raw, exit_code=1, stderr_tail=words.encode())).kind == "failed"


def test_a_limit_event_counts_only_when_it_stopped_the_turn() -> None:
    event = {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1795996557}}
    rejected = json.dumps(event).encode()
    assert claude.find_outcome(an_end(rejected, a_result(structured_output=RESULT))).kind == "done"
    stopped = claude.find_outcome(an_end(rejected, a_result(is_error=True, result="Stopped."), exit_code=1))
    assert (stopped.kind, "resetsAt 1795996557" in stopped.evidence) == ("limit", True)


def test_a_temporary_limit_of_the_server_is_overload() -> None:
    text = "API Error: Server is temporarily limiting requests (not your usage limit)"
    assistant = {"type": "assistant", "error": "rate_limit", "message": {"content": [{"type": "text", "text": text}]}}
    lines = [json.dumps(assistant).encode(), a_result(is_error=True, result=text, api_error_status=429)]
    assert claude.find_outcome(an_end(*lines, exit_code=1)).kind == "overload"


def test_an_event_injected_into_a_line_costs_only_that_line() -> None:
    allowed = b'{"type":"rate_limit_event","rate_limit_info":{"status":"allowed"}}'
    broken = [
        b'{"type":"assistant","message":{"content":[{"type":"text","text":"abc' + allowed,
        b'def"}]},"stop_reason":"end_turn"}',
    ]
    outcome = claude.find_outcome(an_end(*broken, a_result(result="abcdef", structured_output=RESULT)))
    assert outcome.kind == "done"
    assert [event.kind for line in broken for event in claude.read_event(line)] == ["notice", "notice"]


def test_cost_is_of_this_run_where_the_total_counts_the_session() -> None:
    first = claude.find_outcome(an_end(*recorded("claude", "schema")))
    second = claude.find_outcome(an_end(*recorded("claude", "resume"), previous_usage=first.session_usage))
    assert first.usage == Usage(25369, 14, 84, 0.1031088)
    assert second.usage == Usage(12737, 7, 42, 0.0517644)
    assert second.session_usage == Usage(cost_usd=0.1548732)


@pytest.mark.parametrize(
    ("status", "stderr", "kind"),
    [
        (1, b"error: unknown option '--nosuch-flag'", "usage_error"),
        (1, b"No conversation found with session ID: ac3c5319", "usage_error"),
        (1, b"Error: Session ID ac3c5319 is already in use.", "usage_error"),
        (1, b"--dangerously-skip-permissions cannot be used with root/sudo privileges", "usage_error"),
        (1, b"Error: Input must be provided either through stdin or as a prompt argument", "usage_error"),
        (1, b"Invalid API key \xc2\xb7 Please run /login", "auth"),
        (137, b"", "crashed"),
    ],
)
def test_an_end_before_the_first_event(status: int, stderr: bytes, kind: str) -> None:
    assert claude.find_outcome(without_changes(exit_code=status, stderr_tail=stderr)).kind == kind


def test_a_missing_sandbox_is_named() -> None:
    text = "Error: sandbox required but unavailable: bubblewrap (bwrap) not installed"
    line = a_result(subtype="error_during_execution", is_error=True, errors=[text])
    outcome = claude.find_outcome(without_changes(line, exit_code=1))
    assert (outcome.kind, outcome.evidence) == ("usage_error", text)


def test_a_turn_that_ends_among_retries_is_judged_by_the_last_one() -> None:
    lines = recorded("claude", "529")
    retry = next(number for number, line in enumerate(lines) if b'"api_retry"' in line)
    outcome = claude.find_outcome(without_changes(*lines[: retry + 1], exit_code=None, signal=15))
    assert (outcome.kind, outcome.evidence) == ("overload", "the last request failed: overloaded 529")
