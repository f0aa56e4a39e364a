# ruff: noqa: PTH100 (pathlib would cost every command its import)
"""The store in one SQLite file, for one home. Its specification is `contract.Store`.

One connection a thread. Every write is a `BEGIN IMMEDIATE` (lesson 1): a transaction that begins with reading and
writes later would fail with SQLITE_BUSY in spite of the busy timeout as soon as another process writes in between.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..model.records import Attempt, Drain, Event, Leader, Owner, Project, Push, Row, Task, Turn
from ..model.states import AttemptState, TaskState
from ..wire.codec import dumps, loads
from ..wire.errors import ShunterError
from . import columns, file
from .pushes import PushWrites
from .queries import load_migrations, load_queries
from .turns import TurnWrites

ABBREVIATED = 5  # candidates that an ambiguous prefix shows


def open_store(
    path: str, *, create: bool = True, readonly: bool = False, trace: file.Trace | None = None
) -> SqliteStore:
    """Open the store; with `create` make it when it is missing. `readonly` never writes, not even a migration (P17).

    Raises STORE_UNAVAILABLE (with the path), STORE_NEWER, STORE_DAMAGED or DISK_FULL; in none of these cases has
    anything been written.
    """
    path = os.path.abspath(os.fspath(path))
    scripts = load_migrations()
    if not file.is_used(path):
        if readonly or not create:
            raise ShunterError("STORE_UNAVAILABLE", f"there is no store at {path}", hint="submit a task first")
        file.create_file(path)
    version = file.check_file(path, latest=len(scripts))
    store = SqliteStore(path, readonly=readonly, trace=trace)
    if version < len(scripts):
        store.migrate(scripts)
    return store


class SqliteStore(PushWrites, TurnWrites):
    """See `contract.Store`."""

    def __init__(self, path: str, *, readonly: bool = False, trace: file.Trace | None = None) -> None:
        self.path = path
        self.readonly = readonly
        self._trace = trace
        self._queries = load_queries()
        self._local = threading.local()
        self._links: list[sqlite3.Connection] = []

    def close(self) -> None:
        while self._links:
            self._links.pop().close()
        self._local = threading.local()

    def migrate(self, scripts: list[str]) -> None:
        if self.readonly:
            raise ShunterError(
                "STORE_UNAVAILABLE",
                f"{self.path} has an older schema and is only being read",
                hint="run any command that writes, such as `shunter reconcile`",
            )
        with file.store_errors(self.path):
            file.migrate(self._link(), self.path, scripts=scripts)

    # Connections and statements

    def _link(self) -> sqlite3.Connection:
        # A connection must not cross a fork: closing it in the child would drop the parent's locks. It is left alone.
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.link = file.connect(self.path, readonly=self.readonly, trace=self._trace)
            self._local.pid = os.getpid()
            self._links.append(self._local.link)
        link: sqlite3.Connection = self._local.link
        return link

    def _run(self, name: str, values: dict[str, Any]) -> sqlite3.Cursor:
        try:
            return self._link().execute(self._queries[name], values)
        except UnicodeEncodeError:  # a lone surrogate, from a file name or an argument that was no UTF-8
            return self._link().execute(self._queries[name], {key: _encodable(each) for key, each in values.items()})

    def _all(self, name: str, **values: Any) -> list[tuple[Any, ...]]:
        with file.store_errors(self.path):
            return self._run(name, values).fetchall()

    def _records(self, name: str, **values: Any) -> list[sqlite3.Row]:
        with file.store_errors(self.path):
            cursor = self._run(name, values)
            cursor.row_factory = sqlite3.Row
            return cursor.fetchall()

    @contextmanager
    def _write(self) -> Iterator[None]:
        with file.store_errors(self.path), file.write_transaction(self._link()):
            yield

    # Tasks

    def add_task(
        self, task: Task, turn: Turn, row: Row, project: Project, events: Iterable[Event] = (), push: Push | None = None
    ) -> Row:
        with self._write():
            ids = {"worktree_id": project.worktree_id, "repo_id": project.repo_id, "project_id": project.project_id}
            self._run("record_project", {**ids, "record": dumps(project)})
            self._run("insert_task", columns.task_columns(task))
            if push is not None:
                self._reserve_branch(push)
            placed = self._insert_turn(turn, row)
            self._record(events)
        return placed

    def add_turn(self, turn: Turn, row: Row, *, actor: str, events: Iterable[Event] = ()) -> Row:
        with self._write():
            task = self.load_task(turn.task_id)
            if task.state in (TaskState.CLOSED, TaskState.ABANDONED):
                raise ShunterError("TASK_CLOSED", f"task {task.id} is {task.state}", hint="submit a new task")
            if self._records("load_open_turn", task_id=task.id):
                raise _busy(task.id)
            self._move_task(task, TaskState.QUEUED, actor=actor, now=turn.created_at, reason="follow-up")
            placed = self._insert_turn(turn, row)
            self._record(events)
        return placed

    def _insert_turn(self, turn: Turn, row: Row) -> Row:
        if turn.fresh_session:
            self._run("forget_session", {"id": turn.task_id})
        values: dict[str, Any] = {"id": turn.id, "task_id": turn.task_id, "number": turn.number}
        values |= {"created_at": turn.created_at}
        values |= {"state": turn.state.value, "step": turn.step.value}
        values |= {"repeat_number": turn.repeat_number, "repeat_limit": turn.repeat_limit}
        values |= {"fresh_session": int(turn.fresh_session), "account": turn.account}
        self._run("insert_turn", values)
        shape = {
            "pinned_host": row.pinned_host or "",
            "requirements": columns.requirements_text(row.requirements),
        }
        self._run("record_shape", shape)
        values = {"turn_id": row.turn_id, "task_id": row.task_id, "priority": row.priority, "summary": row.summary}
        values |= {"not_before": row.not_before, "seq": row.seq or None}
        added = self._run("insert_row", {**values, **shape})
        return replace(row, seq=added.lastrowid or 0, owner=None)

    def find_task(self, prefix: str) -> Task:
        # "{" is the character after "z": the range holds everything that begins with the prefix.
        found = [
            columns.read_task(row)
            for row in self._records("find_tasks", prefix=prefix, after=prefix + "{", limit=ABBREVIATED + 1)
            if prefix
        ]
        if not found:
            raise _unknown(prefix)
        if len(found) == 1 or found[0].id == prefix:
            return found[0]
        shown = ", ".join(task.id for task in found[:ABBREVIATED]) + (", …" if len(found) > ABBREVIATED else "")
        raise ShunterError("TASK_AMBIGUOUS", f"{prefix} is the beginning of {shown}", hint="give one character more")

    def load_task(self, task_id: str) -> Task:
        found = self._records("load_task", id=task_id)
        if not found:
            raise _unknown(task_id)
        return columns.read_task(found[0])

    def load_project(self, task: Task) -> Project:
        ids = {"worktree_id": task.worktree_id, "repo_id": task.repo_id, "project_id": task.project_id}
        record = self._all("load_project", **ids)[0][0]
        return loads(Project, record, where=f"project of task {task.id}", code="STORE_DAMAGED")

    def list_tasks(
        self, *, states: Sequence[TaskState] | None = None, project_id: str | None = None, limit: int = 100
    ) -> list[Task]:
        # One query a state: each walks its index and stops at the limit, whatever else the store holds.
        name = "list_tasks_of_state" if project_id is None else "list_project_tasks_of_state"
        only = {} if project_id is None else {"project_id": project_id}
        rows = [
            row
            for state in (TaskState if states is None else states)
            for row in self._records(name, state=state.value, limit=limit, **only)
        ]
        rows.sort(key=lambda row: (-row["created_at"], row["id"]))
        return [columns.read_task(row) for row in rows[:limit]]

    def count_tasks(self) -> dict[TaskState, int]:
        return {TaskState(state): count for state, count in self._all("count_tasks")}

    def record_session(self, task_id: str, session_id: str) -> bool:
        with self._write():
            self._run("record_task_facts", _task_facts(task_id, session_id=session_id))
            return self.load_task(task_id).session_id == session_id

    def mark_fetched(self, task_id: str, oid: str, *, ref: str, actor: str, now: float) -> bool:
        with self._write():
            task = self.load_task(task_id)
            if (task.fetched_oid, task.fetched_ref) == (oid, ref):
                return False
            self._run("record_task_facts", _task_facts(task_id, fetched_oid=oid, fetched_ref=ref))
            self._record([Event(at=now, kind="fetched", actor=actor, task_id=task_id, reason=oid)])
            return True

    def close_task(self, task_id: str, *, actor: str, reason: str, now: float) -> bool:
        with self._write():
            task = self.load_task(task_id)
            if task.state == TaskState.CLOSED:
                return False
            if self._records("load_open_turn", task_id=task_id):
                raise _busy(task_id)
            self._move_task(task, TaskState.CLOSED, actor=actor, now=now, reason=reason)
            return True

    # Turns and attempts: reading

    def load_turn(self, turn_id: str) -> Turn:
        found = self._records("load_turn", id=turn_id)
        if not found:
            raise ShunterError("TASK_UNKNOWN", f"no turn has the id {turn_id}")
        return columns.read_turn(found[0])

    def load_turns(self, task_id: str) -> list[Turn]:
        return [columns.read_turn(row) for row in self._records("load_turns", task_id=task_id)]

    def load_latest_turns(self, task_ids: Sequence[str]) -> dict[str, Turn]:
        rows = self._records("load_latest_turns", task_ids=dumps(list(task_ids)))
        return {row["task_id"]: columns.read_turn(row) for row in rows}

    def load_attempts(self, turn_id: str) -> list[Attempt]:
        rows = self._records("load_attempts", turn_id=turn_id)
        return [Attempt(**{**dict(row), "state": AttemptState(row["state"])}) for row in rows]

    def open_turns(self, *, waiting: bool = True) -> list[Turn]:
        name = "load_open_turns" if waiting else "load_turns_under_way"
        return [columns.read_turn(row) for row in self._records(name)]

    def has_open_turns(self) -> bool:
        return bool(self._all("has_open_turns")[0][0])

    def waiting_first_turns(self, *, before: float) -> list[str]:
        return [row["id"] for row in self._records("load_waiting_first_turns", before=before)]

    # Queue: reading

    def waiting_rows(self, *, now: float, per_shape: int = 64) -> list[Row]:
        return columns.read_rows(self._all("waiting_rows", now=now, per_shape=per_shape))

    def list_rows(self, *, limit: int = 100) -> list[Row]:
        return columns.read_rows(self._all("list_rows", limit=limit))

    def load_row(self, turn_id: str) -> Row | None:
        found = columns.read_rows(self._all("load_row", turn_id=turn_id))
        return found[0] if found else None

    def next_due(self, *, now: float) -> float | None:
        due: float | None = self._all("next_due", now=now)[0][0]
        return due

    def end_pauses(self) -> None:
        with self._write():
            self._run("end_pauses", {})

    # Hosts

    def drain_host(self, host: str, *, actor: str, reason: str | None, now: float) -> bool:
        with self._write():
            done = self._run("drain_host", {"host": host, "at": now, "actor": actor, "reason": reason}).rowcount == 1
            if done:
                said = host if reason is None else f"{host}: {reason}"
                self._record([Event(now, "host drained", actor, reason=said)])
        return done

    def enable_host(self, host: str, *, actor: str, now: float) -> bool:
        with self._write():
            done = self._run("enable_host", {"host": host}).rowcount == 1
            if done:
                self._record([Event(now, "host enabled", actor, reason=host)])
        return done

    def list_drains(self) -> list[Drain]:
        return [Drain(**dict(row)) for row in self._records("list_drains")]

    # Accounts

    def list_accounts(self, host: str) -> list[str]:
        return [account for (account,) in self._all("list_accounts", host=host)]

    def load_failures(self, host: str, account: str, *, limit: int = 16) -> list[Turn]:
        found = self._records("load_failures", host=host, account=account, limit=limit)
        return [columns.read_turn(row) for row in found]

    def clear_account(self, host: str, account: str, *, actor: str, now: float) -> None:
        with self._write():
            self._run("clear_account", {"host": host, "account": account, "at": now, "actor": actor})
            self._record([Event(now, "account cleared", actor, reason=f"{account} on {host}")])

    def load_clearance(self, host: str, account: str) -> float | None:
        found = self._all("load_clearance", host=host, account=account)
        return found[0][0] if found else None

    # Audit trail

    def record_events(self, events: Iterable[Event]) -> None:
        with self._write():
            self._record(events)

    def events_since(self, seq: int, *, task_id: str | None = None, limit: int = 1000) -> list[Event]:
        name = "events_since" if task_id is None else "task_events_since"
        only = {} if task_id is None else {"task_id": task_id}
        return [Event(**dict(row)) for row in self._records(name, seq=seq, limit=limit, **only)]

    def newest_event(self) -> int:
        return int(self._all("newest_event")[0][0])

    def _record(self, events: Iterable[Event]) -> None:
        for event in events:
            self._run("insert_event", columns.event_columns(event))

    # Leadership

    def read_leader(self) -> Leader:
        return columns.read_leader(self._all("read_leader")[0])

    def take_leadership(
        self, owner: Owner, *, now: float, dead: Callable[[Owner], bool | None], ttl_s: float = 15.0
    ) -> int | None:
        seen = self.read_leader()
        if seen.owner is not None and seen.owner.id == owner.id:
            return seen.term
        if seen.owner is not None:
            verdict = dead(seen.owner)
            # abs(): after a clock was set back, a renewal that lies far in the future must not block for hours (F167).
            expired = abs(now - seen.renewed_at) > seen.ttl_s
            if verdict is False or (verdict is None and not expired):
                return None
        values = {"owner_id": owner.id, "host_id": owner.host_id, "boot_id": owner.boot_id, "pid": owner.pid}
        values |= {"start_time": owner.start_time, "now": now, "ttl_s": ttl_s, "term": seen.term}
        values |= {"former": seen.owner and seen.owner.id, "renewed_at": seen.renewed_at}
        with self._write():
            if self._run("take_leadership", values).rowcount != 1:
                return None
            self._run("take_over_rows", {"owner": owner.id})
            reason = f"term {seen.term + 1}" + (f", after {seen.owner.id}" if seen.owner else "")
            self._record([Event(at=now, kind="leads", actor=owner.id, reason=reason)])
        return seen.term + 1

    def renew_leadership(self, owner: Owner, term: int, *, now: float) -> bool:
        with self._write():
            return self._run("renew_leadership", {"owner_id": owner.id, "term": term, "now": now}).rowcount == 1

    def resign_if_idle(self, owner: Owner, term: int) -> bool:
        with self._write():
            self._run("resign", {"owner_id": owner.id, "term": term})
            leader = self.read_leader()
        return leader.owner is None or leader.owner.id != owner.id or leader.term != term


def _task_facts(task_id: str, **facts: str) -> dict[str, str | None]:
    none = dict.fromkeys(("session_id", "head_oid", "fetched_oid", "fetched_ref", "last_outcome", "renamed_session"))
    return {"id": task_id, **none, **facts}


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _unknown(given: str) -> ShunterError:
    return ShunterError("TASK_UNKNOWN", f"no task has the id {given!r}", hint="shunter list")


def _busy(task_id: str) -> ShunterError:
    return ShunterError("TASK_BUSY", f"task {task_id} has a turn that is not over", hint=f"shunter cancel {task_id}")
