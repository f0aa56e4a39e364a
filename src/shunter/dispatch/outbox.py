"""Has hosts carry out what is due in their outboxes, one push at a time for each origin, with growing pauses.

The host does the push and is the authority on what came of it; here is when it is asked. Asking again is harmless, so a
crash anywhere only means that it is asked again: before the question is recorded, and after the answer was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..fleet.client import ACCEPT_LIMIT_S
from ..model.records import Push
from ..model.states import PushState
from ..store.contract import Store
from ..wire.errors import CODES, ShunterError
from ..wire.messages import PushAsk, Pushed
from .hosts import HostEntry
from .log import log

ACTOR = "dispatcher"
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 900.0
TRIES = 100  # about a day; then a person asks


class Outbox:
    """`advance` carries out what is due for one origin; the caller sees to it that one thread at a time has it."""

    def __init__(
        self,
        store: Store,
        hosts: dict[str, HostEntry],
        *,
        on_boundary: Callable[[str], None],
        on_pushed: Callable[[str], None],
    ) -> None:
        self.store, self.hosts, self.on_boundary, self.on_pushed = store, hosts, on_boundary, on_pushed

    def due_origins(self) -> set[str]:
        return {push.origin for push in self.store.due_pushes(now=time.time())}

    def advance(self, origin: str) -> None:
        for push in self.store.due_pushes(now=time.time()):
            if push.origin == origin:
                self._carry_out(push)

    def _carry_out(self, push: Push) -> None:
        self.on_boundary("before push")
        try:
            found = self._ask(push)
        except ShunterError as exc:
            found = Pushed("failed", error_code=exc.code, error_text=exc.text, hint=exc.hint)
        if found.wanted_oid not in (None, push.wanted_oid):
            found = Pushed("pending")  # a newer turn's work: its own record comes with the end of that turn
        self.on_boundary("recording push")
        self._record(push, found)
        self.on_boundary("after push")

    def _ask(self, push: Push) -> Pushed:
        host = self.store.load_task(push.task_id).host
        entry = self.hosts.get(host or "")
        if entry is None:
            text = f"host {host}, where the work is, is not in the configuration any more"
            raise ShunterError("HOST_UNKNOWN", text)
        found: Pushed = entry.client.call("origin.push", PushAsk(push.task_id, ACTOR), limit_s=ACCEPT_LIMIT_S)
        if found.state in ("none", "dropped"):
            raise ShunterError("PUBLISH_REFUSED", f"host {host} has nothing to push for task {push.task_id}")
        return found

    def _record(self, push: Push, found: Pushed) -> None:
        state, now = PushState(found.state), time.time()
        if found.error_code == "PUBLISH_REFUSED":
            state = PushState.REFUSED
        if found.error_code not in (None, push.error_code):
            log(f"push of task {push.task_id}: {found.error_code}: {found.error_text}")
        done = self.store.record_push(
            push,
            state,
            actor=ACTOR,
            now=now,
            next_try_at=self._next_try_at(push, state, found.error_code, now),
            error_code=found.error_code,
            error_text=found.error_text,
            hint=found.hint,
        )
        if done and state == PushState.PUSHED:
            self.on_pushed(push.task_id)

    def _next_try_at(self, push: Push, state: PushState, code: str | None, now: float) -> float | None:
        """None where trying again cannot help before somebody has done something."""
        if state == PushState.PENDING:  # wanted anew while it was carried out
            return now + FIRST_PAUSE_S
        if state != PushState.FAILED or push.tries + 1 >= TRIES or not CODES[code or "INTERNAL"].retryable:
            return None
        return now + retry_pause_s(push.tries)


def retry_pause_s(tries: int) -> float:
    """Two seconds after the first failure, twice as much after each more, a quarter of an hour at most."""
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(tries, 20))
