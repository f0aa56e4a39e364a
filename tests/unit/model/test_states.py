"""The tables of moves, walked."""

from __future__ import annotations

import itertools

import pytest

from shunter.model import states
from shunter.model.states import (
    FINAL_PUSH_STATES,
    FINAL_STEPS,
    FINAL_TASK_STATES,
    FINAL_TURN_STATES,
    PUSH_MOVES,
    STATE_OF_STEP,
    STEP_MOVES,
    TASK_MOVES,
    TURN_MOVES,
    PushState,
    Step,
    TaskState,
    TurnState,
)

TABLES = [
    (TurnState, TURN_MOVES, FINAL_TURN_STATES),
    (TaskState, TASK_MOVES, FINAL_TASK_STATES),
    (Step, STEP_MOVES, FINAL_STEPS),
    (PushState, PUSH_MOVES, FINAL_PUSH_STATES),
]


def reachable(moves, start):
    seen, new = set(), {start}
    while new:
        seen |= new
        new = {target for state in new for target in moves[state]} - seen
    return seen


@pytest.mark.parametrize(("kind", "moves", "final"), TABLES)
def test_every_state_has_a_line_in_its_table(kind, moves, final):
    assert set(moves) == set(kind)


@pytest.mark.parametrize(("kind", "moves", "final"), TABLES)
def test_exactly_the_final_states_lead_nowhere(kind, moves, final):
    assert {state for state in kind if not moves[state]} == final


@pytest.mark.parametrize(("kind", "moves", "final"), TABLES)
def test_every_state_is_reached_from_the_first_and_can_come_to_an_end(kind, moves, final):
    assert reachable(moves, next(iter(kind))) == set(kind)
    for state in kind:
        assert reachable(moves, state) & final


@pytest.mark.parametrize(("kind", "moves", "final"), TABLES)
def test_no_state_leads_to_itself(kind, moves, final):
    assert not [state for state in kind if state in moves[state]]


def test_only_steps_before_running_lead_back_and_only_to_waiting():
    order = list(Step)
    back = {(old, new) for old in Step for new in STEP_MOVES[old] if order.index(new) < order.index(old)}
    assert back == {(step, Step.WAITING) for step in (Step.CLAIMED, Step.LEASED, Step.SHIPPED, Step.ACCEPTED)}
    assert {Step.ACCEPTED} == states.TOMBSTONE_STEPS


def test_each_step_leads_to_the_next_one():
    order = list(Step)
    for old, new in itertools.pairwise(order):
        assert states.may_step(old, new)


def test_a_step_never_asks_for_a_turn_move_that_is_forbidden():
    for old, targets in STEP_MOVES.items():
        for new in targets:
            if old in STATE_OF_STEP and new in STATE_OF_STEP:
                assert states.may_move_turn(STATE_OF_STEP[old], STATE_OF_STEP[new]), (old, new)


def test_nothing_that_never_ran_can_succeed():
    assert TurnState.SUCCEEDED not in TURN_MOVES[TurnState.QUEUED]
    assert TurnState.TIMED_OUT not in TURN_MOVES[TurnState.QUEUED]


def test_a_state_is_its_word():
    assert f"{TurnState.TIMED_OUT}" == "timed_out"
