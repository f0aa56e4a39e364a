from __future__ import annotations

import json

import pytest

from shunter.agents import exec as adapter
from shunter.agents.contract import Ended, Event, Gap, SessionRule, Turn
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Question
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
    plain = Turn(command=("a", "--model={model}"), resume=("a", "-r", "{session_id}"), model="m", session_id="s-1")
    assert adapter.launch(plain).argv == ("a", "-r", "s-1"), "what the session began with need not be said again"
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


MORE = FIELDS | {"notice": "note", "prompt": "ask", "error": "error.message"}
ASKS = '{"status": "needs_input", "summary": "Which?"}'
DONE = '{"status": "done", "summary": "Fixed."}'


def event(**values: object) -> bytes:
    return json.dumps(values).encode()


def error(message: object) -> bytes:
    return event(error={"message": message})


def block(result: str) -> str:
    return f"```shunter-result\n{result}\n```"


def told(*lines: bytes, **facts: object) -> Ended:
    return changed(an_end(*lines, **facts), fields=MORE)


@pytest.mark.parametrize(
    "lines",
    [
        [event(meta={"sid": "s"}), *block(ASKS).encode().split(b"\n")],
        [event(meta={"sid": "s"}), *block(json.dumps(json.loads(ASKS), indent=2)).encode().split(b"\n")],
        [event(text=block(ASKS)), event(text="bye")],
        [event(text="Well."), event(text=block(ASKS)), event(usage={"out": 3})],
        [event(text=block(DONE)), *block(ASKS).encode().split(b"\n"), event(text="bye")],
        [*block(DONE).encode().split(b"\n"), event(text=ASKS)],
        [b"```shunter-result", b"broken", *block(ASKS).encode().split(b"\n")],
        [error("overloaded"), event(text=block(ASKS))],
        [error("overloaded"), *block(ASKS).encode().split(b"\n")],
    ],
)
def test_the_last_block_counts_wherever_it_stands(lines: list[bytes]) -> None:
    outcome = adapter.find_outcome(told(*lines))
    assert (outcome.kind, outcome.summary, outcome.structured) == ("needs_input", "Which?", True)


@pytest.mark.parametrize(
    "lines",
    [
        [event(text=f"```shunter-result\n{ASKS}"), event(text="```")],
        [event(text=block(DONE) + "\nbut the tests fail.")],
        [event(text=block(DONE)), event(text=block("{}"))],
        [event(text=block(DONE)), b"```shunter-result", DONE.encode()],
        [b"```shunter-result", event(text="working"), event(path="a.py"), b"```"],
        [event(text='{"status": "finished"}')],
    ],
)
def test_a_block_that_cannot_be_read_is_unknown(lines: list[bytes]) -> None:
    outcome = adapter.find_outcome(told(*lines))
    assert (outcome.kind, outcome.structured) == ("unknown", False)
    assert outcome.evidence == "exit status 0, but its structured result cannot be read"


def test_events_in_a_block_that_is_none_are_not_lost() -> None:
    lines = [b"```shunter-result", event(meta={"sid": "s-1"}), event(path="a.py"), error("usage limit reached")]
    for behind in ([], [b"```"], [b"```shunter-result"]):
        outcome = adapter.find_outcome(told(*lines, *behind))
        assert (outcome.kind, outcome.session_id, outcome.tool_calls) == ("limit", "s-1", 1)


def test_a_block_with_the_keys_of_an_event_is_no_event() -> None:
    fields = {"message": "summary", "notice": "status"}
    outcome = adapter.find_outcome(changed(an_end(*block(ASKS).encode().split(b"\n")), fields=fields))
    assert (outcome.kind, outcome.summary) == ("needs_input", "Which?")


def test_an_indented_block_is_a_quotation() -> None:
    quoted = "Write this:\n" + "\n".join(f"    {line}" for line in block(ASKS).split("\n"))
    assert adapter.find_outcome(told(event(text=quoted))).kind == "done"


def test_a_result_is_shown_as_it_stands() -> None:
    assert adapter.read_event(ASKS.encode(), MORE) == [Event("message", ASKS)]


@pytest.mark.parametrize("fields", [{}, MORE])
@pytest.mark.parametrize(
    "lines",
    [
        [Gap()],
        [b"```shunter-result", b'{"status": "done",', Gap(), b'"summary": "s"}', b"```"],
        [*block(DONE).encode().split(b"\n"), Gap(), event(text="bye"), b"bye"],
        [event(ask="Which?"), Gap(), event(usage={"out": 3})],
    ],
)
def test_what_was_lost_may_have_been_the_result(lines: list[bytes], fields: dict[str, str]) -> None:
    for facts in (an_end, without_changes):
        outcome = adapter.find_outcome(changed(facts(*lines), fields=fields, lost_bytes=4711))
        assert outcome.kind == "unknown"
        assert "cannot be read" in outcome.evidence or "4711 bytes of its output are not kept" in outcome.evidence
    late = adapter.find_outcome(changed(an_end(*lines, *block(ASKS).encode().split(b"\n")), fields=fields))
    assert late.kind == "needs_input", "what ends the output was kept"
    assert adapter.find_outcome(changed(an_end(*lines), fields=fields, last_message=DONE)).kind == "done"


def test_a_last_event_that_is_too_long_to_be_read_is_not_done() -> None:
    long = event(text="x" * (4 << 20))
    assert adapter.find_outcome(told(event(text="begin"), long, event(usage={"out": 3}))).kind == "unknown"
    assert adapter.find_outcome(told(long, event(text="end"))).kind == "done"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_an_error_that_nothing_follows_outweighs_an_earlier_block(exit_code: int) -> None:
    ended = told(event(text=block(DONE)), error("usage limit reached"), exit_code=exit_code)
    outcome = adapter.find_outcome(ended)
    assert (outcome.kind, outcome.structured) == ("limit", False)
    assert adapter.find_outcome(changed(ended, last_message=DONE)).kind == "limit"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_notice_or_a_figure_does_not_take_an_error_back(exit_code: int) -> None:
    behind = (event(note="tidying up"), event(usage={"out": 3}))
    outcome = adapter.find_outcome(told(error("usage limit reached"), *behind, exit_code=exit_code))
    assert (outcome.kind, outcome.evidence) == ("limit", "usage limit reached")
    assert adapter.find_outcome(told(error("usage limit reached"), event(path="a.py"), *behind)).kind == "done"


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"code": 7, "text": "boom"}, '{"code": 7, "text": "boom"}'), (["a"], '["a"]'), (429, "429"), (True, "true")],
)
def test_an_error_of_any_form_is_one(value: object, shown: str) -> None:
    outcome = adapter.find_outcome(told(event(text="begin"), error(value)))
    assert (outcome.kind, outcome.evidence) == ("failed", shown)
    assert adapter.read_event(error(value), MORE) == [Event("error", shown)]


def test_a_huge_error_is_cut() -> None:
    (shown,) = adapter.read_event(error({"text": "x" * 1_000_000}), MORE)
    assert len(shown.text.encode()) <= 4096


@pytest.mark.parametrize("value", [None, False, 0, "", " \n", [], {}])
def test_an_error_that_is_empty_is_none(value: object) -> None:
    assert adapter.find_outcome(told(event(text="begin"), error(value))).kind == "done"
    assert adapter.read_event(error(value), MORE) == []


@pytest.mark.parametrize("earlier", [[], [event(text=block(DONE))], [event(text=block("{}"))]])
def test_a_last_event_that_is_a_question_needs_input(earlier: list[bytes]) -> None:
    for behind in ([], [event(note="waiting")], [event(usage={"out": 3})]):
        outcome = adapter.find_outcome(told(*earlier, event(ask="Left or right?"), *behind))
        assert (outcome.kind, outcome.questions) == ("needs_input", (Question("Left or right?"),))
        assert outcome.structured is False


def test_a_question_that_it_went_on_from_is_none() -> None:
    asks = event(ask="Left or right?")
    assert adapter.find_outcome(told(asks, event(text="Left, then."))).kind == "done"
    assert adapter.find_outcome(told(asks, event(text=block(DONE)))).kind == "done"
    assert adapter.find_outcome(told(event(text=block(ASKS)), asks)).summary == "Which?", "it has the questions"
    assert adapter.find_outcome(told(asks, exit_code=1)).kind == "failed"


@pytest.mark.parametrize(
    "written", ["", " \n", "I am done.", '{"status": "done"', "[" * 100_000, block(DONE) + "\nbut"]
)
@pytest.mark.parametrize("fields", [{}, MORE])
def test_a_result_file_that_cannot_be_read_is_unknown(written: str, fields: dict[str, str]) -> None:
    ended = changed(an_end(event(text=block(DONE))), fields=fields, last_message=written)
    outcome = adapter.find_outcome(ended)
    assert (outcome.kind, outcome.structured) == ("unknown", False)
    assert "its structured result cannot be read" in outcome.evidence


def test_an_option_that_is_none_is_named() -> None:
    usage = b"error: unexpected argument '--bad' found\n\nUsage: x [OPTIONS]\n\nFor more information, try '--help'.\n"
    outcome = adapter.find_outcome(an_end(exit_code=2, stderr_tail=usage))
    assert outcome.evidence == "exit status 2: error: unexpected argument '--bad' found"
