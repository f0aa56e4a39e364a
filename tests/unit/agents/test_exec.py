from __future__ import annotations

import pytest

from shunter.agents import exec as adapter
from shunter.agents.contract import Event, Turn
from shunter.wire.errors import ShunterError

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
    "wish", [{"model": "m"}, {"effort": "low"}, {"session_id": "a"}, {"max_turns": 1}, {"command": ()}]
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
