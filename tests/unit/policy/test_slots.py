"""Slots of a host that several homes share: nothing counts twice, and what has ended holds nothing."""

from __future__ import annotations

import pytest

from shunter.model.records import Turn
from shunter.model.states import Step, TurnState
from shunter.policy.slots import ASKING_S, FACTS_HOLD_S, count_slots
from shunter.wire.messages import Facts

ANSWERED = 1000.0
NOW = ANSWERED + 1


def a_turn(turn_id="mine-1", *, claimed_at=ANSWERED - 60, settled_at=None):
    step = Step.RUNNING if settled_at is None else Step.SETTLED
    task_id, number = turn_id.split("-")
    return Turn(
        turn_id, task_id, int(number), TurnState.RUNNING, step, 0.0, claimed_at=claimed_at, settled_at=settled_at
    )


def facts_of(slots_used, *running):
    return Facts(slots_used, 0, None, None, None, None, tuple(f"{each}-abcdef" for each in running))


def counted(turns, facts, *latest, now=NOW):
    return count_slots(turns, facts, ANSWERED, latest={turn.task_id: turn for turn in latest}, now=now)


MINE = a_turn()


@pytest.mark.parametrize(
    ("turns", "facts", "latest", "slots"),
    [
        pytest.param([], None, [], 0, id="never asked"),
        pytest.param([MINE], None, [], 1, id="claimed, never asked"),
        pytest.param([], facts_of(2, "other-1", "more-1"), [], 2, id="all of another home"),
        pytest.param([], facts_of(2, "other-1"), [], 1, id="a lease that is not accepted yet, of whichever home"),
        pytest.param([], facts_of(1), [], 0, id="mine, leased when they were taken and settled since"),
        pytest.param([MINE], facts_of(1, "mine-1"), [], 1, id="mine alone, which the host names too"),
        pytest.param([MINE], facts_of(2, "mine-1", "other-1"), [], 2, id="one each"),
        pytest.param([MINE], facts_of(1), [], 1, id="mine, leased and not accepted"),
        pytest.param([MINE], facts_of(0), [], 1, id="mine, and its slot is free there already"),
        pytest.param([a_turn(claimed_at=ANSWERED + 0.5)], facts_of(1, "other-1"), [], 2, id="claimed since"),
        pytest.param([], facts_of(1, "mine-1"), [a_turn(settled_at=ANSWERED + 0.5)], 0, id="ended since"),
        pytest.param(
            [], facts_of(2, "mine-1", "other-1"), [a_turn(settled_at=ANSWERED + 0.5)], 1, id="mine ended, other runs"
        ),
        pytest.param([], facts_of(1, "mine-1"), [a_turn("mine-2", claimed_at=None)], 0, id="the next message waits"),
        pytest.param(
            [], facts_of(1, "mine-1"), [a_turn(settled_at=ANSWERED - ASKING_S - 1)], 1, id="given up, and runs"
        ),
    ],
)
def test_what_is_taken(turns, facts, latest, slots):
    assert counted(turns, facts, *latest) == slots


@pytest.mark.parametrize("age_s", [FACTS_HOLD_S + 1, -1])
def test_what_others_took_is_not_known_for_ever(age_s):
    assert counted([MINE], facts_of(2, "mine-1", "other-1"), now=ANSWERED + age_s) == 1
