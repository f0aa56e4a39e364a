from __future__ import annotations

import pytest

from shunter.agents import exec as adapter
from shunter.agents.contract import Event, SessionRule, Turn
from shunter.wire.errors import ShunterError
from shunter.wire.record import changed

from .recorded import an_end, without_changes

BLOCK = (b"working", b"```shunter-result", b'{"status": "blocked", "summary": "No disk."}', b"```")


def test_the_command_is_started_as_it_is_and_has_no_sandbox() -> None:
    launch = adapter.launch(Turn(command=("sh", "-c", "cat > x"), env={"A": "b"}, new_session_id="abc"))
    assert (launch.argv, launch.env) == (("sh", "-c", "cat > x"), {"A": "b"})
    assert (launch.permission, launch.session_id, launch.session, launch.wants_schema) == (
        "unattended",
        None,
        None,
        False,
    )


@pytest.mark.parametrize(
    "wish", [{"model": "m"}, {"effort": "low"}, {"max_turns": 1}, {"command": ()}, {"command": ("a", "-m={model}")}]
)
def test_what_a_plain_command_cannot_do_is_refused(wish: dict[str, object]) -> None:
    with pytest.raises(ShunterError) as caught:
        adapter.launch(Turn(**{"command": ("true",)} | wish))  # type: ignore[arg-type]
    assert caught.value.code == "AGENT_OPTION"


def test_the_exit_status_is_its_word() -> None:
    assert adapter.find_outcome(an_end(b"usage limit reached")).kind == "done"
    assert adapter.find_outcome(an_end(commits=0)).kind == "done", "left-over files are changes"
    assert adapter.find_outcome(without_changes()).kind == "no_changes"
    failed = adapter.find_outcome(an_end(exit_code=2, stderr_tail=b"make: no rule\n\n"))
    assert (failed.kind, failed.evidence) == ("failed", "exit status 2: make: no rule")
    assert adapter.find_outcome(an_end(exit_code=None, signal=9)).kind == "crashed"
    assert adapter.find_outcome(an_end(exit_code=None)).kind == "lost"


def test_a_result_block_says_more() -> None:
    outcome = adapter.find_outcome(without_changes(*BLOCK))
    assert (outcome.kind, outcome.summary, outcome.structured) == ("blocked", "No disk.", True)


def test_a_result_block_does_not_outweigh_a_failure() -> None:
    assert adapter.find_outcome(an_end(*BLOCK, exit_code=1)).kind == "failed"


def test_done_in_a_block_without_changes_is_no_changes() -> None:
    lines = [line.replace(b"blocked", b"done") for line in BLOCK]
    assert adapter.find_outcome(without_changes(*lines)).kind == "no_changes"
    assert adapter.find_outcome(an_end(*lines)).kind == "done"


def test_every_line_is_a_message() -> None:
    assert adapter.read_event(b"\x1b[1mhi\xff") == [Event("message", "\x1b[1mhi\ufffd")]


def test_the_version_command_does_not_run_the_program() -> None:
    assert adapter.version_argv(("./deploy", "--now")) == ("sh", "-c", 'command -v -- "$0"', "./deploy")


FIELDS = {
    "session": "meta.sid",
    "message": "text",
    "command": "run.argv",
    "exit_code": "run.status",
    "error": "error.message",
    "output_tokens": "usage.out",
    "file": "path",
}


def test_a_template_takes_model_and_session() -> None:
    resume = ("a", "-r", "{session_id}", "{model}")
    turn = Turn(command=("a", "--model={model}"), resume=resume, model="m", fields=FIELDS)
    first, later = adapter.launch(turn), adapter.launch(changed(turn, session_id="s-1"))
    assert (first.argv, first.session) == (("a", "--model=m"), SessionRule(marker='"sid"', key="sid"))
    assert (later.argv, later.session_id) == (("a", "-r", "s-1", "m"), "s-1")
    assert adapter.launch(Turn(command=("a",), session_id="s-1")).argv == ("a",), "without `resume` it starts anew"


def test_json_lines_are_read_where_the_fields_say() -> None:
    ended = an_end(
        b'{"meta": {"sid": "s-1"}}',
        b"not json",
        b'{"error": {"message": "usage limit reached"}}',
        b'{"text": "went on", "usage": {"out": 7}}',
        b'{"text": 5, "path": ["x"]}',
    )
    outcome = adapter.find_outcome(changed(ended, fields=FIELDS))
    assert (outcome.kind, outcome.summary, outcome.session_id) == ("done", "went on", "s-1")
    assert outcome.usage.output_tokens == 7
    assert adapter.read_event(b'{"run": {"argv": "ls", "status": 2}}', FIELDS) == [Event("command", "ls", 2)]
    assert adapter.read_event(b'{"path": "a.txt"}', FIELDS) == [Event("file", "", None, "a.txt")]
    assert adapter.read_event(b'{"other": 1}', FIELDS) == []
    assert adapter.read_event(b"plain", FIELDS) == [Event("message", "plain")]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_error_that_nothing_follows_is_judged(exit_code: int) -> None:
    ended = an_end(b'{"error": {"message": "usage limit reached, resets_at 1786715000"}}', exit_code=exit_code)
    outcome = adapter.find_outcome(changed(ended, fields=FIELDS))
    assert outcome.kind == "limit" and outcome.limit is not None and outcome.limit.resets_at == 1786715000.0
    assert adapter.find_outcome(ended).kind in ("done", "failed"), "without fields it is only text"


def test_an_error_about_the_work_stops_no_account() -> None:
    ended = an_end(b'{"error": {"message": "Could not edit auth.py: 401 Unauthorized expected, got 200"}}', exit_code=1)
    assert adapter.find_outcome(changed(ended, fields=FIELDS)).kind == "failed"


def test_what_it_called_is_counted_where_a_field_tells_it() -> None:
    ended = an_end(b'{"run": {"argv": "ls"}}', b'{"path": "a.txt"}', b'{"text": "ls"}')
    assert adapter.find_outcome(changed(ended, fields=FIELDS)).tool_calls == 2
    assert adapter.find_outcome(changed(ended, fields={"message": "text"})).tool_calls is None
    assert adapter.find_outcome(ended).tool_calls is None


def test_a_result_file_is_the_result() -> None:
    ended = changed(an_end(b"working"), last_message='{"status": "needs_input", "summary": "Which?"}')
    assert adapter.find_outcome(ended).kind == "needs_input"
