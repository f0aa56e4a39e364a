"""Branches that go to an origin: what home knows of each, and when it is tried again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ..model.records import Event, Push
from ..model.states import UNDELIVERED, PushState, may_move_push
from ..wire.codec import dumps
from ..wire.errors import ShunterError
from ..wire.messages import End
from . import columns


class PushWrites:
    """Needs `_write`, `_run`, `_record`, `_records` and `_all` of the class that mixes it in."""

    def _write(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def _run(self, name: str, values: dict[str, Any]) -> sqlite3.Cursor:
        raise NotImplementedError

    def _record(self, events: Iterable[Event]) -> None:
        raise NotImplementedError

    def _records(self, name: str, **values: Any) -> list[sqlite3.Row]:
        raise NotImplementedError

    def load_push(self, task_id: str) -> Push | None:
        return self.load_pushes([task_id]).get(task_id)

    def load_pushes(self, task_ids: Sequence[str]) -> dict[str, Push]:
        rows = self._records("load_pushes", task_ids=dumps(list(task_ids)))
        return {row["task_id"]: columns.read_push(row) for row in rows}

    def due_pushes(self, *, now: float) -> list[Push]:
        return [columns.read_push(row) for row in self._records("due_pushes", now=now)]

    def next_push_due(self) -> float | None:
        due: float | None = self._records("next_push")[0][0]
        return due

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
        if not may_move_push(push.state, state):
            raise ShunterError("INTERNAL", f"push of {push.task_id} must not go from {push.state} to {state}")
        values: dict[str, Any] = {"task_id": push.task_id, "wanted_oid": push.wanted_oid}
        values["from_state"] = push.state.value
        values |= {"state": state.value, "next_try_at": next_try_at, "now": now}
        values |= {"pushed_oid": push.wanted_oid if state == PushState.PUSHED else None}
        values |= {"error_code": error_code, "error_text": error_text, "hint": hint}
        with self._write():
            done = self._run("record_push", values).rowcount == 1
            # A server that is away for a night must not fill the history, in whatever words it is away.
            if done and (push.state, push.error_code) != (state, error_code):
                said = f"{error_code}: {error_text}" if error_code else push.wanted_oid
                self._record([_event(push, state, actor=actor, now=now, reason=said)])
        return done

    def retry_push(self, task_id: str, *, actor: str, now: float) -> bool:
        with self._write():
            push = self.load_push(task_id)
            if push is None or push.state not in UNDELIVERED:
                return False
            self._want(push, PushState.PENDING, push.wanted_oid, actor=actor, now=now, reason="another try")
            return True

    # Pieces of other transactions

    def _reserve_branch(self, push: Push) -> None:
        holder = self._records("find_branch_holder", origin=push.origin, branch=push.branch)
        if holder:
            other, branch = holder[0]["task_id"], holder[0]["branch"]
            beside = "" if branch == push.branch else f", and {push.branch} cannot stand beside it"
            raise ShunterError(
                "BRANCH_TAKEN",
                f"branch {branch} belongs to task {other}, which is not closed{beside}",
                hint=f"another --publish-branch, or none: then it is shunter/<task id>; or shunter close {other}",
            )
        values = {"task_id": push.task_id, "origin": push.origin, "url": push.url, "branch": push.branch}
        self._run("insert_push", {**values, "now": push.updated_at})

    def _want_push(self, task_id: str, end: End, *, actor: str, now: float) -> None:
        """A turn has ended so."""
        push, publication = self.load_push(task_id), end.publication
        if push is None or publication is None or push.state == PushState.DROPPED:
            return
        if publication.commits and not (push.state == PushState.PUSHED and push.pushed_oid == publication.head_oid):
            self._want(push, PushState.PENDING, publication.head_oid, actor=actor, now=now, reason=publication.head_oid)
        elif not publication.commits and push.state == PushState.PLANNED:
            self._want(push, PushState.NOTHING, None, actor=actor, now=now, reason="no commits")

    def _want(
        self, push: Push, state: PushState, oid: str | None, *, actor: str, now: float, reason: str | None
    ) -> None:
        due = now if state == PushState.PENDING else None
        values = {"task_id": push.task_id, "state": state.value, "wanted_oid": oid, "next_try_at": due, "now": now}
        self._run("want_push", values)
        self._record([_event(push, state, actor=actor, now=now, reason=reason)])

    def _release_branch(self, task_id: str, *, now: float) -> None:
        self._run("release_branch", {"task_id": task_id, "now": now})


def _event(push: Push, to: PushState, *, actor: str, now: float, reason: str | None) -> Event:
    said = None if reason is None else reason[:300]
    return Event(now, "push", actor, push.task_id, from_state=push.state.value, to_state=to.value, reason=said)
