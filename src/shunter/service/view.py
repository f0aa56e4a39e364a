"""What people and programs are told of a task: one record, rendered as text or JSON by the faces."""

from __future__ import annotations

from ..model.records import Attempt, Event, Push, Task, Turn
from ..model.states import PushState, Step, TaskState
from ..policy.outcome import NOT_AT_HOME
from ..store.contract import Store
from ..wire.errors import ShunterError
from ..wire.record import dataclass


@dataclass(frozen=True)
class TaskView:
    """`ref` is where the result stands in the user's repository, None before that; `phrase` says it in words."""

    task: Task
    turn: Turn | None  # the last one
    phrase: str
    ref: str | None
    push: Push | None = None  # None: the result goes home alone
    again_at: float | None = None  # when the turn, a repeat that waits, is due


@dataclass(frozen=True)
class TaskDetail:
    view: TaskView
    turns: tuple[Turn, ...]
    attempts: tuple[Attempt, ...]
    events: tuple[Event, ...]
    follow_up: Turn | None = None  # a message that waits for the end of the last turn

    @property
    def messages(self) -> tuple[Turn, ...]:
        return self.turns if self.follow_up is None else (*self.turns, self.follow_up)


@dataclass(frozen=True)
class Timing:
    """Where the time of a turn went, in seconds; None for a stage that was not reached."""

    turn_id: str
    stages: tuple[tuple[str, float | None], ...]


def view_task(store: Store, task: Task, turn: Turn | None, push: Push | None) -> TaskView:
    again_at = None
    if turn is not None and turn.repeat_number and turn.step == Step.WAITING:
        row = store.load_row(turn.id)
        again_at = row.not_before if row is not None else None
    return TaskView(task, turn, phrase_of(task, turn, push), task.fetched_ref, push, again_at)


def load_view(store: Store, task_id: str) -> TaskView:
    turns = store.load_turns(task_id)
    return view_task(store, store.load_task(task_id), turns[-1] if turns else None, store.load_push(task_id))


def phrase_of(task: Task, turn: Turn | None, push: Push | None = None) -> str:
    """One or two words for a table: what a person wants to know first."""
    if turn is None:
        return str(task.state)
    if turn.step != Step.SETTLED:
        if turn.uncertain:
            return "uncertain"
        if turn.cancel_requested_at is not None:
            return "cancelling"
        if turn.step == Step.WAITING:
            return "waiting"
        if turn.step == Step.RUNNING:
            return "running"
        return "finishing" if turn.step in (Step.ENDED, Step.FETCHED) else "dispatching"
    ending = ending_of(turn)
    if push is not None and push.state in (PushState.FAILED, PushState.REFUSED):
        ending += " (not on origin)"
    return f"{ending} (closed)" if task.state == TaskState.CLOSED else ending


def ending_of(turn: Turn) -> str:
    """How a settled turn ended: the outcome's kind, or the turn's state when no agent ran."""
    if turn.outcome is None:
        return str(turn.state)
    away = turn.error_code in NOT_AT_HOME
    return f"{turn.outcome.outcome} (not at home)" if away else turn.outcome.outcome


def without_result(task: Task, turn: Turn) -> ShunterError:
    """What is to be said when somebody wants a result that is not there; `turn` is the last one."""
    if turn.step != Step.SETTLED:
        return ShunterError("FETCH_FAILED", f"task {task.id} has no result yet", hint=f"shunter wait {task.id}")
    if turn.error_code is not None:
        why = f": {turn.error_code}: {turn.error_text or ''}"
    elif turn.outcome is not None:
        why = f": {turn.outcome.evidence}"
    else:
        why = f", {turn.state} before any agent was started"
    hint = f"shunter fetch {task.id}" if turn.error_code in NOT_AT_HOME else None
    return ShunterError("FETCH_FAILED", f"task {task.id} is over without a result{why}", hint=hint)


def list_views(store: Store, *, everything: bool, limit: int, project_id: str | None = None) -> list[TaskView]:
    """Newest first. Without `everything` closed tasks are left out."""
    states = None if everything else [state for state in TaskState if state != TaskState.CLOSED]
    tasks = store.list_tasks(states=states, project_id=project_id, limit=limit)
    turns = store.load_latest_turns([task.id for task in tasks])
    pushes = store.load_pushes([task.id for task in tasks if task.options.push_branch is not None])
    return [view_task(store, task, turns.get(task.id), pushes.get(task.id)) for task in tasks]


def load_detail(store: Store, prefix: str) -> TaskDetail:
    task = store.find_task(prefix)
    turns = store.load_turns(task.id)
    attempts = [attempt for turn in turns for attempt in store.load_attempts(turn.id)]
    events: list[Event] = []
    while more := store.events_since(events[-1].seq if events else 0, task_id=task.id):
        events += more
    view = view_task(store, task, turns[-1] if turns else None, store.load_push(task.id))
    follow_up = store.load_follow_up(turns[-1]) if turns else None
    return TaskDetail(view, tuple(turns), tuple(attempts), tuple(events), follow_up)


@dataclass(frozen=True)
class Receipt:
    """What became of a message, as times; each stage that was reached stays, whatever restarts."""

    turn_id: str
    stored: float  # at home; nothing loses it from here on
    delivered: float | None  # the host has it, with the job that it belongs to
    taken: float | None  # the agent runs with it as its input
    answered: float | None  # the agent's turn is over and has an outcome


def receipt_of(turn: Turn) -> Receipt:
    answered = turn.ended_at if turn.outcome is not None else None
    return Receipt(turn.id, turn.created_at, turn.accepted_at, turn.started_at, answered)


def timing_of(turn: Turn) -> Timing:
    """Queue, lease, transfer, acceptance with its checkout, the start, the run, publication, delivery."""
    marks = (
        ("queue", turn.created_at, turn.claimed_at),
        ("lease", turn.claimed_at, turn.leased_at),
        ("ship", turn.leased_at, turn.shipped_at),
        ("accept", turn.shipped_at, turn.accepted_at),
        ("run", turn.started_at, turn.exited_at),
        ("publish", turn.exited_at, turn.ended_at),
        ("fetch", turn.ended_at, turn.fetched_at),
        ("settle", turn.fetched_at or turn.ended_at, turn.settled_at),
        ("submit to agent process", turn.created_at, turn.started_at),
        ("all", turn.created_at, turn.settled_at),
    )
    return Timing(
        turn.id, tuple((name, None if start is None or end is None else end - start) for name, start, end in marks)
    )
