"""What follows from a failed turn: the table of ends, and the pauses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shunter.model.records import Turn
from shunter.model.states import Step, TurnState
from shunter.policy.retry import Again, RetryRule, Stop, decide_again, did_nothing, judge_account, judge_session
from shunter.wire.messages import End, Publication, Usage

NOW = 1000.0
NOTHING = Publication("a" * 40, 0)
RULE = RetryRule(overload=3, overload_pause_s=30.0, quick_failures=3, quick_pause_s=900.0)


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
        (an_end(publication=None), True),
        (an_end(publication=replace(NOTHING, commits=2)), True),
        (an_end(publication=replace(NOTHING, left_out=("a repository inside",))), True),
        (an_end(publication=replace(NOTHING, turn_commits=1)), False),
    ],
)
def test_only_what_is_known_to_be_nothing_is_nothing(end, nothing):
    assert did_nothing(end) is nothing


@pytest.mark.parametrize(("number", "pause_s"), [(0, 30.0), (1, 120.0), (2, 480.0)])
def test_an_overload_is_repeated_with_growing_pauses(number, pause_s):
    again = decided(a_turn(an_end(), repeat_number=number))
    assert isinstance(again, Again)
    assert (again.at, again.number, again.limit) == (NOW + pause_s, number + 1, 3)


def test_no_pause_is_longer_than_four_hours():
    again = decided(a_turn(an_end(), repeat_number=99), rule=replace(RULE, overload=100))
    assert again.at == NOW + 4 * 3600.0


def test_chance_makes_a_pause_longer_by_a_fifth_at_most():
    assert decided(a_turn(an_end()), spread=1.0).at == NOW + 36.0


def test_it_ends_after_the_last_repeat():
    stop = decided(a_turn(an_end(), repeat_number=3, repeat_limit=3))
    assert isinstance(stop, Stop) and "repeat 3 of 3 was the last" in stop.words
    assert isinstance(decided(a_turn(an_end()), rule=replace(RULE, overload=0)), Stop)


@pytest.mark.parametrize(
    "kind",
    [
        *("done", "needs_input", "blocked", "unknown", "no_changes", "failed", "limit", "auth", "context_full"),
        *("usage_error", "crashed", "timed_out", "cancelled", "lost", "launch_failed", "oom"),
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


def failures(*kinds, **facts):
    """Newest first, one a second, the newest at NOW."""
    return [a_turn(an_end(kind, **facts), settled_at=NOW - place) for place, kind in enumerate(kinds)]


def judged(*turns, rule=RULE):
    return judge_account(turns, rule=rule)


def test_as_many_quick_failures_as_the_rule_says_stop_an_account():
    assert judged(*failures("failed", "limit")) is None
    stopped = judged(*failures("failed", "limit", "usage_error"))
    assert stopped.until == NOW + 900.0
    assert "3 turns in a row" in stopped.words and "last: failed: as it was told" in stopped.words
    assert judged(*failures(*["failed"] * 9), rule=replace(RULE, quick_failures=0)) is None


@pytest.mark.parametrize(("count", "pause_s"), [(4, 1800.0), (6, 7200.0), (7, 4 * 3600.0), (16, 4 * 3600.0)])
def test_each_further_failure_doubles_the_pause_up_to_four_hours(count, pause_s):
    assert judged(*failures(*["failed"] * count)).until == NOW + pause_s


@pytest.mark.parametrize(
    "facts",
    [
        {"tool_calls": 1},
        {"tool_calls": None},
        {"usage": Usage(output_tokens=1)},
        {"publication": replace(NOTHING, turn_commits=1)},
    ],
)
def test_a_failure_that_did_something_says_that_the_account_works(facts):
    worked = a_turn(an_end("failed", **facts), settled_at=NOW)
    assert judged(*failures("failed", "failed"), worked, *failures("failed", "auth")) is None


def test_what_is_no_word_on_the_account_is_passed_over():
    lost_place = a_turn(an_end("launch_failed", reason="workspace_lost"), settled_at=NOW)
    repeated = [a_turn(an_end("overload"), settled_at=NOW, repeat_number=number) for number in (2, 1, 0)]
    two = failures("limit", "failed")
    assert judged(lost_place, *repeated, *failures("oom"), *two) is None
    assert judged(lost_place, *repeated, *two, *failures("failed")) is not None


def test_an_overload_counts_once_it_is_not_repeated_any_more():
    last = a_turn(an_end("overload"), settled_at=NOW, repeat_number=3)
    assert judged(last, *failures("overload", "failed", "failed")) is not None
    assert judged(*failures("overload", "overload", "overload")) is None
    assert judged(*failures("overload", "overload", "overload"), rule=replace(RULE, overload=0)) is not None


def test_one_login_that_failed_stops_an_account_for_a_day():
    stopped = judged(*failures("limit", "auth"))
    assert stopped.until == NOW - 1 + 86400.0
    assert "its login failed: auth" in stopped.words
    assert judged(*failures("auth", tool_calls=5)) is not None, "also in the middle of a turn"


def session(*turns, cleared_at=None, rule=RULE):
    return judge_session(turns, cleared_at=cleared_at, rule=rule)


def test_a_session_stops_by_its_own_failures():
    quick = failures("failed", "limit", "failed")
    assert session(*quick[:2]) is None
    assert "3 turns in a row" in session(*quick)
    assert session(*quick, rule=replace(RULE, quick_failures=0)) is None
    assert session(*quick, cleared_at=NOW - 1.5) is None
    cancelled = a_turn(None, state=TurnState.CANCELLED, settled_at=NOW)
    assert session(quick[0], cancelled, *quick[1:]) is not None
    well = a_turn(an_end("done"), state=TurnState.SUCCEEDED, settled_at=NOW)
    assert session(*quick[:2], well, quick[2]) is None


def test_repeats_are_one_failure_of_a_session_and_a_fresh_one_has_none_yet():
    quick = failures("overload", "overload", "failed")
    assert session(replace(quick[0], repeat_number=1), *quick[1:]) is None
    assert session(quick[0], replace(quick[1], fresh_session=True), quick[2]) is None
