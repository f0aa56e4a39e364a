from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Callable

import pytest

from shunter.agents import codex
from shunter.agents.contract import Ended, Turn
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Usage

from .recorded import an_end, recorded, without_changes

ID = "01a22980-d87b-7a10-afd5-ba330be0b77a"
WELL = b'{"type":"turn.completed","usage":{"input_tokens":9,"cached_input_tokens":2,"output_tokens":3}}'
DONE = '{"status":"done","summary":"Fixed.","questions":[],"files_changed":["a.py"]}'
OUT = "--output-schema {schema} -o {last_message}"
QUIET = "--json -c analytics.enabled=false"
RESUME_WORKSPACE = """-c 'sandbox_mode="workspace-write"' -c 'sandbox_workspace_write.writable_roots=["{git_dir}"]'"""
RESUME_OPEN = """-c 'sandbox_mode="danger-full-access"'"""

LAUNCHES = [
    (Turn(), f"codex exec {QUIET} -s workspace-write --add-dir {{git_dir}} {OUT} -"),
    (
        Turn(permission="unattended", model="m-1", effort="high"),
        f"""codex exec {QUIET} -s danger-full-access -m m-1 -c 'model_reasoning_effort="high"' {OUT} -""",
    ),
    (Turn(session_id=ID), f"codex exec resume {QUIET} {RESUME_WORKSPACE} {OUT} {ID} -"),
    (
        Turn(session_id=ID, permission="unattended", model="m-1"),
        f"codex exec resume {QUIET} {RESUME_OPEN} -m m-1 {OUT} {ID} -",
    ),
    (
        Turn(command=("/opt/codex", "-c", "model_provider=x")),
        f"/opt/codex -c model_provider=x exec {QUIET} -s workspace-write --add-dir {{git_dir}} {OUT} -",
    ),
]


@pytest.mark.parametrize(("turn", "line"), LAUNCHES)
def test_the_command_line(turn: Turn, line: str) -> None:
    launch = codex.launch(turn)
    assert list(launch.argv) == shlex.split(line)
    assert (launch.wants_schema, launch.permission, launch.session_id) == (True, turn.permission, turn.session_id)


def test_configuration_words_are_toml() -> None:
    argv = codex.launch(Turn(session_id=ID, effort="low")).argv
    settings = [word for option, word in zip(argv, argv[1:]) if option == "-c" and '"' in word]
    read = [tomllib.loads(word.replace("{git_dir}", "/a b/.git")) for word in settings]
    assert read == [
        {"sandbox_mode": "workspace-write"},
        {"sandbox_workspace_write": {"writable_roots": ["/a b/.git"]}},
        {"model_reasoning_effort": "low"},
    ]


@pytest.mark.parametrize(
    "turn",
    [
        Turn(max_turns=3),
        Turn(max_budget_usd=1.0),
        Turn(permission="root"),
        Turn(session_id="-c"),
        Turn(session_id=""),
        Turn(model="--oss"),
        Turn(model="a\nb"),
        Turn(effort='low"\nx="'),
    ],
)
def test_what_codex_cannot_do_is_refused(turn: Turn) -> None:
    with pytest.raises(ShunterError) as caught:
        codex.launch(turn)
    assert caught.value.code == "AGENT_OPTION"


def test_configured_environment_is_passed_on() -> None:
    assert codex.launch(Turn(env={"CODEX_HOME": "/x"})).env == {"CODEX_HOME": "/x"}


def test_usage_is_what_the_thread_gained() -> None:
    first = codex.find_outcome(an_end(*recorded("codex", "resume-first")))
    assert first.session_usage == first.usage == Usage(21100, 14, 84)
    second = codex.find_outcome(an_end(*recorded("codex", "resume-second"), previous_usage=first.session_usage))
    assert (second.usage, second.session_usage) == (Usage(21598, 14, 84), Usage(42698, 28, 168))
    assert second.session_id == first.session_id == "01a22980-ce97-7dc3-a77f-0171b031d045"


def test_a_counter_that_went_back_is_this_turns() -> None:
    outcome = codex.find_outcome(an_end(WELL, previous_usage=Usage(50, 1, None)))
    assert outcome.usage == Usage(9, 1, 3)


@pytest.mark.parametrize("status", ["done", "needs_input", "blocked"])
def test_the_result_file_is_the_agents_word(status: str) -> None:
    outcome = codex.find_outcome(an_end(WELL, last_message=DONE.replace("done", status)))
    assert (outcome.kind, outcome.summary, outcome.structured) == (status, "Fixed.", True)


def test_without_the_file_the_last_message_counts() -> None:
    item = {"type": "item.completed", "item": {"type": "agent_message", "text": DONE}}
    outcome = codex.find_outcome(an_end(json.dumps(item).encode(), WELL))
    assert (outcome.kind, outcome.structured) == ("done", True)


def test_a_result_of_a_failed_turn_does_not_count() -> None:
    failed = b'{"type":"turn.failed","error":{"message":"unexpected status 401 Unauthorized"}}'
    outcome = codex.find_outcome(an_end(failed, last_message=DONE))
    assert (outcome.kind, outcome.structured) == ("auth", False)


def test_a_result_outweighs_a_bad_exit_after_the_turn() -> None:
    outcome = codex.find_outcome(an_end(WELL, exit_code=1, last_message=DONE))
    assert (outcome.kind, outcome.evidence) == ("done", "the structured result says done, then exit status 1")


@pytest.mark.parametrize("message", [None, "", "I am done.", "[" * 100_000, '{"a":' * 100_000])
def test_a_missing_result_is_unknown(message: str | None) -> None:
    outcome = codex.find_outcome(an_end(WELL, last_message=message))
    assert (outcome.kind, outcome.structured) == ("unknown", False)
    assert codex.find_outcome(without_changes(WELL, last_message=message)).kind == "no_changes"


@pytest.mark.parametrize("facts", [an_end, without_changes])
def test_a_malformed_result_is_unknown_with_and_without_changes(facts: Callable[..., Ended]) -> None:
    outcome = codex.find_outcome(facts(WELL, last_message='{"status":"done"}'))
    assert (outcome.kind, outcome.evidence) == ("unknown", "exit status 0, but its structured result cannot be read")


def test_an_error_behind_a_turn_that_ended_well_is_judged() -> None:
    error = b'{"type":"error","message":"usage limit reached"}'
    assert codex.find_outcome(an_end(WELL, error, last_message=DONE)).kind == "limit"
    assert codex.find_outcome(an_end(error, WELL, last_message=DONE)).kind == "done"


def test_done_without_changes_and_tokens_is_no_changes() -> None:
    nothing = b'{"type":"turn.completed","usage":{"input_tokens":0,"output_tokens":0}}'
    assert codex.find_outcome(without_changes(nothing, last_message=DONE)).kind == "no_changes"
    assert codex.find_outcome(without_changes(WELL, last_message=DONE)).kind == "done", "an answer needs no commit"


def test_limits_are_read_from_the_error_channel_alone() -> None:
    words = "You\u2019ve hit your usage limit. 401 Unauthorized. stream disconnected"
    items = [
        {"type": "item.completed", "item": {"type": "agent_message", "text": words}},
        {"type": "item.completed", "item": {"type": "command_execution", "aggregated_output": words, "exit_code": 1}},
        {"type": "item.completed", "item": {"type": "error", "message": words}},
    ]
    lines = [json.dumps(item).encode() for item in items]
    assert codex.find_outcome(an_end(*lines, WELL, stderr_tail=words.encode())).kind == "unknown"
    assert codex.find_outcome(an_end(*lines, exit_code=1, stderr_tail=words.encode())).kind == "failed"


def test_an_error_that_was_overcome_does_not_count() -> None:
    lines = [*recorded("codex", "cut")[:4], *recorded("codex", "success")[3:]]
    assert codex.find_outcome(an_end(*lines)).kind == "unknown"


def test_status_0_after_an_error_is_that_error() -> None:
    lines = recorded("codex", "limit")
    assert codex.find_outcome(an_end(*lines[:-1])).kind == "limit"


@pytest.mark.parametrize(
    ("status", "stderr", "kind"),
    [
        (1, b"Error: thread/resume failed: no rollout found for thread id 01a2 (code -32600)", "usage_error"),
        (1, b"No saved session found with ID 01a2. Run codex resume without an ID", "usage_error"),
        (2, b"error: unexpected argument '--nosuch' found\n\n  tip: ...\n", "usage_error"),
        (1, b"Error parsing -c overrides: Invalid override (missing '='): x", "usage_error"),
        (1, b"No prompt provided via stdin.", "usage_error"),
        (127, b"sh: codex: not found", "launch_failed"),
        (1, b"Not logged in", "auth"),
        (1, b"thread panicked at src/main.rs", "failed"),
        (1, b"", "failed"),
        (139, b"", "crashed"),
        (None, b"", "lost"),
    ],
)
def test_an_end_before_the_first_event(status: int | None, stderr: bytes, kind: str) -> None:
    outcome = codex.find_outcome(without_changes(b"Welcome!", exit_code=status, stderr_tail=stderr))
    assert outcome.kind == kind
    assert stderr.splitlines()[-1:] == [] or stderr.decode().splitlines()[-1].strip() in outcome.evidence


def test_noise_around_events_changes_nothing() -> None:
    lines = recorded("codex", "limit")
    noise = [b"\x1b[32mUsing node v22\x1b[0m", b"{menu}", b"", b"[1,2]", b"null", b'"turn.completed"', b"\xff\xfe\x00"]
    mixed = [each for line in lines for each in (*noise, line)]
    assert codex.find_outcome(an_end(*mixed, exit_code=1)).kind == "limit"


def test_the_line_that_names_the_wrong_option_is_the_reason() -> None:
    said = b"error: unexpected argument '--bad' found\n\nUsage: codex exec\n\nFor more information, try '--help'.\n"
    outcome = codex.find_outcome(an_end(exit_code=2, stderr_tail=said))
    assert (outcome.kind, outcome.evidence) == (
        "usage_error",
        "exit status 2: error: unexpected argument '--bad' found",
    )
    bare = codex.find_outcome(an_end(exit_code=2, stderr_tail=b"For more information, try '--help'.\n"))
    assert bare.evidence == "exit status 2: For more information, try '--help'."
