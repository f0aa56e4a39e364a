"""What a store is. These docstrings are the specification; `tests/contract/test_store.py` holds every driver to them.

Words: a *compare-and-set* answers False (or None) when the record is no longer what the caller believed, and then
nothing has changed; that is an answer and no error. A move that the tables of `model.states` forbid is a fault of
ours and raises INTERNAL. Every change writes its event in the same transaction. Each call is one transaction, none
reaches a machine or runs git, and all may be called from several threads and several processes at once.

Any call may raise STORE_UNAVAILABLE (cannot be reached, or locked too long), STORE_DAMAGED or DISK_FULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypedDict, Unpack

from ..model.records import Attempt, Drain, Event, Leader, Owner, Project, Push, Row, Task, Turn
from ..model.states import PushState, Step, TaskState, TurnState
from ..wire.messages import End


class Facts(TypedDict, total=False):
    """What a move may record besides the step. What is left out, or None, stays as it was."""

    exit_code: int | None
    signal: int | None
    outcome: End | None  # its kind becomes the task's last outcome, its head the task's head
    error_code: str | None
    error_text: str | None
    started_at: float | None  # by the host's clock, else the time of the move
    exited_at: float | None  # by the host's clock
    ended_at: float | None  # likewise
    lease_token: str | None  # of the attempt
    session_id: str | None  # of the task; the first one stays
    head_oid: str | None  # of the task
    fetched_oid: str | None  # of the task, together with fetched_ref
    fetched_ref: str | None


class Store(Protocol):
    """Home's memory: tasks, turns, attempts, the queue, the audit trail, and who leads."""

    def close(self) -> None:
        """Close the connections of all threads; a second call is harmless."""

    # Tasks

    def add_task(
        self, task: Task, turn: Turn, row: Row, project: Project, events: Iterable[Event] = (), push: Push | None = None
    ) -> Row:
        """Store a queued task with its first turn, at the end of the queue; the row comes back with its place.

        `push` reserves a branch of an origin until the task is closed or abandoned. Raises BRANCH_TAKEN with the open
        task that has it, and nothing is stored then.
        """

    def add_turn(self, turn: Turn, row: Row, *, actor: str, events: Iterable[Event] = ()) -> Row:
        """Store a follow-up and set its task to queued. Raises TASK_UNKNOWN, TASK_CLOSED, or TASK_BUSY (open turn).

        With `turn.fresh_session` the session that the task had is forgotten, so that the next one can be recorded.
        """

    def find_task(self, prefix: str) -> Task:
        """The one task whose id begins so; a full id wins. Raises TASK_UNKNOWN, or TASK_AMBIGUOUS with candidates."""

    def load_task(self, task_id: str) -> Task:
        """By the full id; raises TASK_UNKNOWN."""

    def load_project(self, task: Task) -> Project:
        """The checkout that the task came from, as it was seen last."""

    def list_tasks(
        self, *, states: Sequence[TaskState] | None = None, project_id: str | None = None, limit: int = 100
    ) -> list[Task]:
        """Newest first; states None means all of them. The cost grows with the limit, not with the store."""

    def count_tasks(self) -> dict[TaskState, int]:
        """How many tasks are in each state; states without any are left out."""

    def record_session(self, task_id: str, session_id: str) -> bool:
        """Keep the agent's session id the moment it is known (T10). False when another one is kept: the first stays."""

    def mark_fetched(self, task_id: str, oid: str, *, ref: str, actor: str, now: float) -> bool:
        """This commit is at home, under this ref. False when that was recorded before; a second call is harmless."""

    def close_task(self, task_id: str, *, actor: str, reason: str, now: float) -> bool:
        """Close an open, lost or abandoned task. False when it is closed. Raises TASK_UNKNOWN, TASK_BUSY."""

    # Turns and attempts

    def load_turn(self, turn_id: str) -> Turn:
        """Raises TASK_UNKNOWN."""

    def load_turns(self, task_id: str) -> list[Turn]:
        """First to last; an unknown task has none."""

    def load_latest_turns(self, task_ids: Sequence[str]) -> dict[str, Turn]:
        """The last turn of each task, by task id."""

    def load_attempts(self, turn_id: str) -> list[Attempt]:
        """First to last."""

    def record_publication(self, turn_id: str, end: End, *, actor: str, now: float) -> bool:
        """A settled turn's work was published or fetched after all, which mends its error. False: not settled."""

    def open_turns(self, *, waiting: bool = True) -> list[Turn]:
        """Every turn that is not settled, oldest first. waiting=False leaves out those that still wait."""

    def has_open_turns(self) -> bool:
        """Whether anything waits or is under way; the cost does not grow with the queue."""

    def waiting_first_turns(self, *, before: float) -> list[str]:
        """Ids of first turns that have waited since before then, in the order of the queue."""

    def move_turn(
        self,
        turn_id: str,
        attempt_id: str | None,
        expect_step: Step,
        to_step: Step,
        *,
        actor: str,
        now: float,
        reason: str | None = None,
        state: TurnState | None = None,
        **facts: Unpack[Facts],
    ) -> bool:
        """Compare-and-set one step on by (id, attempt, step), together with what is known by now.

        The turn's state follows from the step; for `ended` the caller gives the final one. Acceptance sets the task
        active and records where it lives. Not for the ways back (`return_row`), the claim (`claim_row`) and the last
        step (`settle_turn`). Ends the uncertainty. False: somebody else moved it, nothing was written.
        """

    def adopt_attempt(
        self, turn_id: str, attempt_id: str, found_id: str, *, actor: str, now: float, reason: str
    ) -> bool:
        """The host of a claimed turn has accepted its job before, as `found_id`: the claimed attempt becomes that one.

        From claimed to accepted in one step. False: somebody else moved the turn, nothing was written.
        """

    def mark_uncertain(
        self, turn_id: str, attempt_id: str, uncertain: bool, *, actor: str, now: float, reason: str | None = None
    ) -> bool:
        """Set or clear the flag of a turn that is under way. False when the attempt is no longer the turn's."""

    def request_cancel(self, task_id: str, *, actor: str, now: float) -> Turn | None:
        """Flag the task's open turn and return it as it was before; None when no turn is open. Raises TASK_UNKNOWN.

        The first request stands, repeating it changes nothing. A turn that still waits is then settled by the caller
        (`settle_turn` from waiting with attempt None), one under way by its driver. A message that was to follow the
        turn is given up with it.
        """

    def interrupt_turn(self, turn: Turn, row: Row, *, actor: str, now: float) -> bool:
        """Ask for the end of the task's open turn, and keep `turn` and its row to come when that one is over: one
        transaction, so that no message is lost with whoever said it. The brief of `turn` is written before.

        False: the turn before it is not open (any more), nothing was changed. Raises TASK_BUSY where a message waits.
        A turn that still waits is settled by the caller, as in `request_cancel`.
        """

    def load_follow_up(self, turn: Turn) -> Turn | None:
        """The turn that comes when this one is over; None: no message waits for that."""

    def settle_turn(
        self,
        turn_id: str,
        attempt_id: str | None,
        expect_step: Step,
        *,
        state: TurnState,
        task_state: TaskState,
        actor: str,
        now: float,
        reason: str | None = None,
        tombstoned: bool = False,
        repeat: tuple[Turn, Row] | None = None,
        **facts: Unpack[Facts],
    ) -> bool:
        """The end of a turn, decided once: final state, the task's state and last outcome; its row goes.

        `tombstoned`: the host has promised that the attempt can never start; required at accepted for a turn that
        did not run. Compare-and-set as in `move_turn`. `repeat`: the next turn, which comes of itself; its row waits
        at the end of the queue and the task is queued again. Left out when somebody has asked for a cancel meanwhile; a
        message that interrupted the turn comes instead, unless the task is abandoned.
        """

    # Queue

    def waiting_rows(self, *, now: float, per_shape: int = 64) -> list[Row]:
        """Rows that may be claimed now, by priority (highest first), then by place.

        Of rows that want the same (requirements and pin) only the first `per_shape` are given; pass at least the
        number of free slots of the whole pool and nothing that could be claimed is missing. Rows whose time has not
        come are left out (`next_due`).
        """

    def list_rows(self, *, limit: int = 100) -> list[Row]:
        """The queue in order: rows that wait and, with an owner, rows that are under way."""

    def load_row(self, turn_id: str) -> Row | None:
        """None when the turn is settled."""

    def next_due(self, *, now: float) -> float | None:
        """The earliest time after `now` at which a deferred row may be claimed."""

    def end_pauses(self) -> None:
        """What came back from a try may be tried again at once. A repeat that is not due yet keeps its time."""

    def claim_row(self, turn_id: str, *, host: str, attempt_id: str, owner: str, now: float) -> Turn | None:
        """Compare-and-set from waiting to claimed: host and a fresh attempt are durable before any remote effect (P5).

        None when it no longer waits, when a cancel was requested (the caller settles it), or when another dispatcher
        leads by now.
        """

    def return_row(
        self,
        turn_id: str,
        attempt_id: str,
        from_step: Step,
        *,
        actor: str,
        now: float,
        reason_code: str,
        not_before: float | None = None,
        tombstoned: bool = False,
    ) -> bool:
        """Give the attempt up and put the turn back to its old place in the queue (P6). Compare-and-set.

        From accepted, or while uncertain, only `tombstoned`, since the host may hold the attempt: else INTERNAL (P13).
        """

    # Branches that go to an origin
    #
    # A turn that ends, or is mended, with a publication makes its commit the wanted one in the same transaction:
    # pending and due now, or `nothing` when it made no commits and nothing was wanted before.

    def load_push(self, task_id: str) -> Push | None:
        """None when the task's result goes home alone."""

    def load_pushes(self, task_ids: Sequence[str]) -> dict[str, Push]:
        """By task id; tasks without are left out."""

    def due_pushes(self, *, now: float) -> list[Push]:
        """What is to be tried by now, longest due first."""

    def next_push_due(self) -> float | None:
        """When something is to be tried at the earliest, also in the past; None when nothing happens by itself."""

    def record_push(
        self,
        push: Push,
        state: PushState,
        *,
        actor: str,
        now: float,
        next_try_at: float | None = None,
        error_code: str | None = None,
        error_text: str | None = None,
        hint: str | None = None,
    ) -> bool:
        """What came of a try of what `push` wanted. Compare-and-set by its state and wanted commit.

        pushed makes the wanted commit the pushed one. Counts the try. The same failure again is no event.
        """

    def retry_push(self, task_id: str, *, actor: str, now: float) -> bool:
        """Try it now, as if for the first time. False when there is nothing undelivered."""

    # Hosts

    def drain_host(self, host: str, *, actor: str, reason: str | None, now: float) -> bool:
        """The host takes no new turns from now on. False when that was so before: the first word stands."""

    def enable_host(self, host: str, *, actor: str, now: float) -> bool:
        """It takes turns again. False when it did."""

    def list_drains(self) -> list[Drain]:
        """By name of the host."""

    # Accounts: a turn counts for the account that it names, on the host where it ran

    def list_accounts(self, host: str) -> list[str]:
        """Those that turns were given there, by name. The cost grows with their number, not with that of the turns."""

    def load_failures(self, host: str, account: str, *, limit: int = 16) -> list[Turn]:
        """Newest first: settled turns that failed with an outcome, since one ended well and since the account was
        cleared. The cost does not grow with what was before."""

    def clear_account(self, host: str, account: str, *, actor: str, now: float) -> None:
        """What failed until now does not count any more."""

    def load_clearance(self, host: str, account: str) -> float | None:
        """When that was said last."""

    # Audit trail

    def record_events(self, events: Iterable[Event]) -> None:
        """Append events that go with no change of state."""

    def events_since(self, seq: int, *, task_id: str | None = None, limit: int = 1000) -> list[Event]:
        """Events with a greater number, oldest first."""

    def newest_event(self) -> int:
        """The number of the last event, 0 before the first. Ask before reading: later changes have greater numbers."""

    # Leadership

    def read_leader(self) -> Leader:
        """Who leads; `owner` None when nobody does."""

    def take_leadership(
        self, owner: Owner, *, now: float, dead: Callable[[Owner], bool | None], ttl_s: float = 15.0
    ) -> int | None:
        """Lead from now on: the new term, or None while another one leads.

        `dead` judges the present owner: True (proved dead) replaces it at once, None (cannot tell) only once its lease
        has run out, False (lives) never, however late it is. Rows under way get the new owner. It is called outside
        the transaction. Taking it again as the present owner gives the same term.
        """

    def renew_leadership(self, owner: Owner, term: int, *, now: float) -> bool:
        """False: somebody else leads, stop."""

    def resign_if_idle(self, owner: Owner, term: int) -> bool:
        """Stop leading unless a turn is open or a push is due some time, in one transaction with that look.

        So no submit is left behind. True: this owner does not lead (any more). False: there is work, go on.
        """
