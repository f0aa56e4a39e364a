"""What an end means: the turn's state, whether it went well, the exit status that stands for it (T13, T20). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..agents import contract
from ..model.records import Push, Turn
from ..model.states import UNDELIVERED, Step, TurnState
from ..wire.errors import CODES
from ..wire.messages import End
from .retry import did_nothing, did_something

STATE_OF_OUTCOME = {
    contract.CANCELLED: TurnState.CANCELLED,
    contract.TIMED_OUT: TurnState.TIMED_OUT,
    contract.LOST: TurnState.LOST,
}
NOT_AT_HOME = ("PUBLISH_FAILED", "FETCH_FAILED")  # error codes of a turn whose work is on its host alone
WELL_ENDED = (contract.DONE, contract.NEEDS_INPUT, contract.BLOCKED, contract.UNKNOWN, contract.NO_CHANGES)


def turn_state_of(end: End) -> TurnState:
    if end.outcome in STATE_OF_OUTCOME:
        return STATE_OF_OUTCOME[end.outcome]
    return TurnState.SUCCEEDED if end.outcome in WELL_ENDED else TurnState.FAILED


def is_lost(turn: Turn) -> bool:
    """Settled without a word of its host on how it ended."""
    return turn.state == TurnState.LOST and turn.outcome is None and turn.attempt_id is not None


def is_given_up(turn: Turn) -> bool:
    """Lost by a person's word, who had asked for its end before; its host may come back with it."""
    return is_lost(turn) and turn.cancel_requested_at is not None


def exit_status_of(turn: Turn) -> int:
    """For `--wait` of one turn: the agent's own status, or what stands for it (T20)."""
    end = turn.outcome
    if end is None:
        if turn.state == TurnState.CANCELLED:
            return 143  # as if it had been ended while it ran
        return CODES[turn.error_code].exit_status if turn.error_code in CODES else 70
    if end.outcome == contract.TIMED_OUT:
        return 124
    if end.outcome == contract.LOST or turn.error_code in NOT_AT_HOME:
        return 70
    if end.outcome == contract.LAUNCH_FAILED:
        return CODES[turn.error_code or "INTERNAL"].exit_status
    if end.signal is not None:
        return 128 + end.signal
    if end.exit_code:
        return end.exit_code
    if end.outcome == contract.CANCELLED:
        return 143
    return 0 if end.outcome in WELL_ENDED and end.outcome != contract.BLOCKED else 1


def push_status_of(push: Push | None) -> int:
    """70 while origin lacks what it was to have: the result is not where it was wanted, however well the agent did."""
    return 70 if push is not None and push.state in UNDELIVERED else 0


def is_follow_up(turn: Turn) -> bool:
    """Whether it counts against --max-followups: somebody asked for it, and the message reached its agent."""
    return turn.number > 1 and not turn.repeat_number and has_reached_agent(turn)


def has_reached_agent(turn: Turn) -> bool:
    """Whether the agent took the turn's message, or may have: its program began with it and refused nothing at once.

    A program that could not be started took nothing, and is not asked to prove it: it may have no count of its tools.
    """
    end = turn.outcome
    if end is None:
        return turn.step != Step.SETTLED or turn.accepted_at is not None
    if end.outcome == contract.LAUNCH_FAILED:
        return did_something(end)
    if end.outcome == contract.CANCELLED and turn.started_at is None:
        return False
    return not (end.outcome == contract.USAGE_ERROR and did_nothing(end))


def worst_status(turns: Sequence[Turn]) -> int:
    """For a `wait` of several: 0, or 1 when any ended badly."""
    return int(any(exit_status_of(turn) for turn in turns))
