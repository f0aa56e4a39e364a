"""What follows from a failed turn: the table of ends, and the pauses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shunter.model.records import Turn
from shunter.model.states import Step, TurnState
from shunter.policy.retry import Again, RetryRule, Stop, decide_again, did_nothing
from shunter.wire.messages import End, Publication, Usage

NOW = 1000.0
NOTHING = Publication("a" * 40, 0)
RULE = RetryRule(overload=3, overload_pause_s=30.0)


def an_end(outcome="overload", **facts):
    return End(outcome, "as it was told", **{"tool_calls": 0, "publication": NOTHING, **facts})


def a_turn(end, **facts):
    turn = Turn("t-1", "t", 1, TurnState.FAILED, Step.FETCHED, 1.0, outcome=end)
    return replace(turn, **facts)


def decided(turn, *, resumes=True, rule=RULE, spread=0.0):
    return decide_again(turn, resumes=resumes, rule=rule, now=NOW, spread=spread)


@pytest.mark.parametrize(
    ("end", "nothing"),
    [
        (an_end(), True),
        (an_end(usage=Usage(input_tokens=7, output_tokens=0)), True),
        (an_end(usage=Usage(output_tokens=1)), False),
        (an_end(tool_calls=1), False),
        (an_end(tool_calls=None), False),
    ],
)
def test_only_what_is_known_to_be_nothing_is_nothing(end, nothing):
    assert did_nothing(end) is nothing


@pytest.mark.parametrize(("number", "pause_s"), [(0, 30.0), (1, 120.0), (2, 480.0)])
def test_an_overload_is_repeated_with_growing_pauses(number, pause_s):
    again = decided(a_turn(an_end(), repeat_number=number))
    assert isinstance(again, Again)
    assert (again.at, again.number, again.limit) == (NOW + pause_s, number + 1, 3)


def test_chance_makes_a_pause_longer_by_a_fifth_at_most():
    assert decided(a_turn(an_end()), spread=1.0).at == NOW + 36.0


def test_it_ends_after_the_last_repeat():
    stop = decided(a_turn(an_end(), repeat_number=3))
    assert isinstance(stop, Stop) and "after 3 repeats" in stop.words
    assert isinstance(decided(a_turn(an_end()), rule=replace(RULE, overload=0)), Stop)


@pytest.mark.parametrize(
    "kind",
    [
        *("done", "needs_input", "blocked", "unknown", "no_changes", "failed", "limit", "auth", "context_full"),
        *("usage_error", "crashed", "timed_out", "cancelled", "lost", "launch_failed"),
    ],
)
def test_nothing_else_is_repeated(kind):
    assert decided(a_turn(an_end(kind))) is None


def test_nothing_is_repeated_that_somebody_wanted_to_end():
    assert decided(a_turn(an_end(), cancel_requested_at=NOW)) is None


def test_nothing_is_repeated_while_its_result_is_not_at_home():
    assert isinstance(decided(a_turn(an_end(), error_code="PUBLISH_FAILED")), Stop)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({}, Again),
        ({"tool_calls": 1}, Stop),
        ({"tool_calls": None}, Stop),
        ({"publication": None}, Stop),
        ({"publication": replace(NOTHING, turn_commits=1)}, Stop),
        ({"publication": replace(NOTHING, left_out=("a repository inside",))}, Stop),
    ],
)
def test_without_a_session_only_a_turn_that_did_nothing_is_repeated(facts, kind):
    turn = a_turn(an_end(**facts))
    assert isinstance(decided(turn, resumes=False), kind)
    assert isinstance(decided(turn), Again)
