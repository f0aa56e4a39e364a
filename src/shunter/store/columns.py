"""Records as columns and back. What stands in a column as JSON is decoded as strictly as a message (P16)."""

from __future__ import annotations

import sqlite3
from typing import Any

from ..model.records import Event, Leader, Options, Owner, Push, Requirements, Row, Task, Turn
from ..model.states import PushState, Step, TaskState, TurnState
from ..wire.codec import dumps, loads
from ..wire.errors import ShunterError
from ..wire.messages import End

_DAMAGED = "STORE_DAMAGED"


def task_columns(task: Task) -> dict[str, Any]:
    columns = {**vars(task)}
    columns["state"] = task.state.value
    columns["options"] = dumps(task.options)
    return columns


def read_task(row: sqlite3.Row) -> Task:
    values = dict(row)
    values["state"] = _state(TaskState, values["state"], "task")
    values["options"] = loads(Options, values["options"], where=f"task {row['id']}: options", code=_DAMAGED)
    return Task(**values)


def read_turn(row: sqlite3.Row) -> Turn:
    values = dict(row)
    values["state"] = _state(TurnState, values["state"], "turn")
    values["step"] = _state(Step, values["step"], "turn")
    values["uncertain"] = bool(values["uncertain"])
    values["fresh_session"] = bool(values["fresh_session"])
    if values["outcome"] is not None:
        values["outcome"] = loads(End, values["outcome"], where=f"turn {row['id']}: outcome", code=_DAMAGED)
    return Turn(**values)


def read_follow_up(task_id: str, row: sqlite3.Row) -> tuple[Turn, Row]:
    where = f"task {task_id}: follow-up"
    return loads(Turn, row["turn"], where=where, code=_DAMAGED), loads(Row, row["place"], where=where, code=_DAMAGED)


def requirements_text(requirements: Requirements) -> str:
    """Equal requirements give equal text: that is what makes rows one shape."""
    return dumps(requirements)


def read_rows(rows: list[tuple[Any, ...]]) -> list[Row]:
    known: dict[str, Requirements] = {}  # shapes are few, rows are many
    found = []
    for turn, task, summary, text, priority, pin, not_before, owner, error, seq in rows:
        if text not in known:
            known[text] = loads(Requirements, text, where=f"row {turn}: requirements", code=_DAMAGED)
        found.append(Row(turn, task, summary, known[text], priority, pin or None, not_before, owner, error, seq))
    return found


def read_push(row: sqlite3.Row) -> Push:
    values = dict(row)
    values["state"] = _state(PushState, values["state"], "push")
    return Push(**values)


def event_columns(event: Event) -> dict[str, Any]:
    return {name: value for name, value in vars(event).items() if name != "seq"}


def read_leader(row: tuple[Any, ...]) -> Leader:
    owner_id, host_id, boot_id, pid, start_time, term, renewed_at, ttl_s = row
    owner = None if owner_id is None else Owner(owner_id, host_id, boot_id, pid, start_time)
    return Leader(owner=owner, term=term, renewed_at=renewed_at, ttl_s=ttl_s)


def _state(kind: Any, value: str, what: str) -> Any:
    try:
        return kind(value)
    except ValueError as exc:
        raise ShunterError(_DAMAGED, f"a {what} has the unknown state {value!r}; nothing was changed") from exc
