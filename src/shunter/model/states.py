"""States of a task and of a turn, the steps of a job, and every legal move between them.

The tables are the only place where a move is allowed. The store checks them before it writes, the tests walk them, and
`docs/` draws its diagrams from them. "Uncertain" is no state: it is a flag on a turn whose host could not be asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class TurnState(StrEnum):
    """What a person is told about one run of the agent."""

    QUEUED = "queued"
    ACCEPTED = "accepted"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    LOST = "lost"


FINAL_TURN_STATES = frozenset(
    {TurnState.SUCCEEDED, TurnState.FAILED, TurnState.CANCELLED, TurnState.TIMED_OUT, TurnState.LOST}
)

TURN_MOVES: Mapping[TurnState, frozenset[TurnState]] = {
    # Before acceptance nothing ran, so nothing can have succeeded or run out of time.
    TurnState.QUEUED: frozenset({TurnState.ACCEPTED, TurnState.FAILED, TurnState.CANCELLED, TurnState.LOST}),
    # Back to queued only under a tombstone; straight to an end when the host says that it is already over.
    TurnState.ACCEPTED: frozenset({TurnState.QUEUED, TurnState.RUNNING}) | FINAL_TURN_STATES,
    TurnState.RUNNING: FINAL_TURN_STATES,
    **dict.fromkeys(FINAL_TURN_STATES, frozenset()),
}


class TaskState(StrEnum):
    """Where a task as a whole stands."""

    QUEUED = "queued"  # its open turn was not accepted by a host yet
    ACTIVE = "active"  # a host has its open turn
    OPEN = "open"  # no turn is open; a follow-up may come
    CLOSED = "closed"
    ABANDONED = "abandoned"  # given up before any host accepted its first turn
    LOST = "lost"  # its last turn ended without a trace; the host may still show up, a person decides


FINAL_TASK_STATES = frozenset({TaskState.CLOSED})

TASK_MOVES: Mapping[TaskState, frozenset[TaskState]] = {
    # To open: a follow-up that was cancelled or failed before acceptance leaves the task as it was.
    TaskState.QUEUED: frozenset({TaskState.ACTIVE, TaskState.OPEN, TaskState.ABANDONED, TaskState.LOST}),
    # Back to queued under a tombstone, or because the turn that ended is repeated; to closed when the task was told to
    # close with that outcome.
    TaskState.ACTIVE: frozenset(
        {TaskState.QUEUED, TaskState.OPEN, TaskState.CLOSED, TaskState.ABANDONED, TaskState.LOST}
    ),
    TaskState.OPEN: frozenset({TaskState.QUEUED, TaskState.CLOSED}),
    TaskState.LOST: frozenset({TaskState.OPEN, TaskState.QUEUED, TaskState.CLOSED}),
    TaskState.ABANDONED: frozenset({TaskState.CLOSED}),  # out of the list, once somebody saw it
    TaskState.CLOSED: frozenset(),
}


class Step(StrEnum):
    """How far the driver has taken a job; recorded before the next step begins."""

    WAITING = "waiting"
    CLAIMED = "claimed"
    LEASED = "leased"
    SHIPPED = "shipped"
    ACCEPTED = "accepted"
    RUNNING = "running"
    ENDED = "ended"
    FETCHED = "fetched"
    SETTLED = "settled"


# A host may hold the attempt from here on: going back to waiting needs its tombstone (P13).
TOMBSTONE_STEPS = frozenset({Step.ACCEPTED})
FINAL_STEPS = frozenset({Step.SETTLED})

STEP_MOVES: Mapping[Step, frozenset[Step]] = {
    Step.WAITING: frozenset({Step.CLAIMED, Step.SETTLED}),
    # To accepted at once when the host ran the job before an older store was put back.
    Step.CLAIMED: frozenset({Step.LEASED, Step.ACCEPTED, Step.WAITING, Step.SETTLED}),
    Step.LEASED: frozenset({Step.SHIPPED, Step.WAITING, Step.SETTLED}),
    Step.SHIPPED: frozenset({Step.ACCEPTED, Step.WAITING, Step.SETTLED}),
    # To ended at once when the job was over before home heard that it ran.
    Step.ACCEPTED: frozenset({Step.RUNNING, Step.ENDED, Step.WAITING, Step.SETTLED}),
    Step.RUNNING: frozenset({Step.ENDED, Step.SETTLED}),
    # To settled without fetched when there is nothing to fetch.
    Step.ENDED: frozenset({Step.FETCHED, Step.SETTLED}),
    Step.FETCHED: frozenset({Step.SETTLED}),
    Step.SETTLED: frozenset(),
}

# The turn's state follows from the step, except at an end, where the host's verdict decides.
STATE_OF_STEP: Mapping[Step, TurnState] = {
    Step.WAITING: TurnState.QUEUED,
    Step.CLAIMED: TurnState.QUEUED,
    Step.LEASED: TurnState.QUEUED,
    Step.SHIPPED: TurnState.QUEUED,
    Step.ACCEPTED: TurnState.ACCEPTED,
    Step.RUNNING: TurnState.RUNNING,
}


class AttemptState(StrEnum):
    """One try to launch a job on a host; each ends in exactly one final state."""

    OPEN = "open"
    ACCEPTED = "accepted"
    TOMBSTONED = "tombstoned"  # the host promised that it can never start
    ENDED = "ended"
    FAILED = "failed"  # given up before the host could have accepted it


FINAL_ATTEMPT_STATES = frozenset({AttemptState.TOMBSTONED, AttemptState.ENDED, AttemptState.FAILED})


class PushState(StrEnum):
    """Where the delivery of a task's branch to origin stands."""

    PLANNED = "planned"  # no turn has published yet
    NOTHING = "nothing"  # the last turn made no commits
    PENDING = "pending"  # recorded on the host, not tried yet
    FAILED = "failed"  # the last try failed; another one is due, or a person has to mend something
    REFUSED = "refused"  # origin does not want it; a person has to look
    PUSHED = "pushed"
    DROPPED = "dropped"  # the task was closed, or its host removed, without


FINAL_PUSH_STATES = frozenset({PushState.DROPPED})
UNDELIVERED = frozenset({PushState.PENDING, PushState.FAILED, PushState.REFUSED})

_TRIED = frozenset({PushState.PUSHED, PushState.FAILED, PushState.REFUSED, PushState.DROPPED})
PUSH_MOVES: Mapping[PushState, frozenset[PushState]] = {
    PushState.PLANNED: frozenset({PushState.NOTHING, PushState.PENDING, PushState.DROPPED}),
    PushState.NOTHING: frozenset({PushState.PENDING, PushState.DROPPED}),
    PushState.PENDING: _TRIED,
    # Back to pending by a follow-up, or because a person wants another try.
    PushState.FAILED: frozenset({PushState.PENDING}) | _TRIED - {PushState.FAILED},
    PushState.REFUSED: frozenset({PushState.PENDING, PushState.DROPPED}),
    PushState.PUSHED: frozenset({PushState.PENDING, PushState.DROPPED}),
    PushState.DROPPED: frozenset(),
}


def may_move_push(old: PushState, new: PushState) -> bool:
    """Staying is always allowed."""
    return old == new or new in PUSH_MOVES[old]


def may_move_turn(old: TurnState, new: TurnState) -> bool:
    """Staying is always allowed."""
    return old == new or new in TURN_MOVES[old]


def may_move_task(old: TaskState, new: TaskState) -> bool:
    """Staying is always allowed."""
    return old == new or new in TASK_MOVES[old]


def may_step(old: Step, new: Step) -> bool:
    """A step never leads to itself."""
    return new in STEP_MOVES[old]
