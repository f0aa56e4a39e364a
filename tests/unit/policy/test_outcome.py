"""Which turns reached their agent, and which count as follow-ups."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shunter.model.records import Turn
from shunter.model.states import Step, TurnState
from shunter.policy.outcome import has_reached_agent, is_follow_up
from shunter.wire.messages import End, Publication, Usage

RAN = Turn("t-2", "t", 2, TurnState.FAILED, Step.SETTLED, 1.0, accepted_at=2.0, started_at=3.0)


def ended(kind, **facts):
    return replace(RAN, outcome=End(kind, "as it was told", **facts))


@pytest.mark.parametrize(
    ("turn", "counts"),
    [
        (ended("done"), True),
        (ended("failed", tool_calls=0), True),
        (ended("done", tool_calls=1), True),
        (replace(ended("done"), number=1), False),
        (replace(ended("done"), repeat_number=1), False),
        (replace(RAN, step=Step.RUNNING), True),
        (replace(RAN, state=TurnState.LOST), True),
        (replace(RAN, state=TurnState.CANCELLED, accepted_at=None, started_at=None), False),
        (replace(ended("cancelled"), started_at=None), False),
        (ended("cancelled"), True),
        (replace(ended("launch_failed"), started_at=None), False),
        (ended("launch_failed"), False),
        (ended("launch_failed", publication=Publication("a" * 40, 3)), False),
        (ended("launch_failed", publication=Publication("a" * 40, 3, turn_commits=1)), True),
        (ended("launch_failed", tool_calls=1), True),
        (ended("usage_error", tool_calls=0), False),
        (ended("usage_error", tool_calls=0, usage=Usage(output_tokens=3)), True),
        (ended("usage_error"), True),
        (ended("usage_error", tool_calls=0, publication=Publication("a" * 40, 1, turn_commits=1)), True),
    ],
)
def test_what_counts_as_a_follow_up(turn, counts):
    assert is_follow_up(turn) is counts


def test_a_first_message_and_a_repeat_reach_the_agent_without_being_follow_ups():
    for turn in (replace(ended("done"), number=1), replace(ended("overload"), repeat_number=1)):
        assert has_reached_agent(turn) and not is_follow_up(turn)
    assert not has_reached_agent(replace(ended("usage_error", tool_calls=0), number=1))
