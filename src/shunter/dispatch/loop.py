"""The dispatcher: leads, claims rows for hosts with room, and advances each job when something happened to it.

Nothing waits for a fixed timer. A submit or cancel pokes the fifo, a host pushes what changed, a job that is done frees
a slot; each puts a word into one queue that the main thread reads. Every `SAFETY_S` all jobs under way are looked at
anyhow. Jobs advance in a small pool of threads, one thread a job at a time; a running job holds no thread.
"""

from __future__ import annotations

import contextlib
import os
import queue
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from ..fleet.config import Config, load_config
from ..fleet.observations import Observation
from ..fleet.places import Places
from ..model.records import Owner, Requirements, Task, Turn
from ..policy.claim import plan_claims
from ..policy.placement import HostView
from ..policy.retry import RetryRule
from ..store.contract import Store
from ..wire.errors import ShunterError
from ..wire.ids import new_attempt_id, task_of, turn_of
from ..wire.messages import Facts
from .driver import Driver
from .former import RECENT_S, FormerRuns
from .hosts import HostEntry, open_hosts, view_host
from .log import log
from .observe import Observer
from .outbox import Outbox
from .slots import find_latest, slots_in_use
from .stops import NO_STOPS, find_stops, retry_rule
from .wake import ANSWERS, ASK_ALL, open_wake_fifo

LEASE_TTL_S = 15.0
SAFETY_S = 5.0
REMEMBERED_TASKS = 1000  # that a new dispatcher looks through for where projects went last
LINGER_S = 3.0  # how long an idle dispatcher keeps its sessions warm for the next command
THREADS = 16


class Jobs:
    """At most one thread a turn; a word that comes while it works makes it look once more."""

    def __init__(self, advance: Callable[[str], float | None], on_done: Callable[[str], None]) -> None:
        self.advance, self.on_done = advance, on_done
        # concurrent.futures would load logging, an eighth of the dispatcher's start.
        self.ready: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.threads = 0
        self.closed = False
        self.guard = threading.Lock()
        self.busy: dict[str, bool] = {}  # turn id: look again
        self.due: dict[str, float] = {}  # turn id: monotonic time of the next try

    def touch(self, turn_id: str) -> None:
        with self.guard:
            if turn_id in self.busy:
                self.busy[turn_id] = True
                return
            self.busy[turn_id] = False
            self.due.pop(turn_id, None)
            if self.threads < THREADS:
                self.threads += 1
                threading.Thread(target=self._serve, daemon=True).start()
        self.ready.put(turn_id)

    def _serve(self) -> None:
        while not self.closed:
            self._work(self.ready.get())

    def _work(self, turn_id: str) -> None:
        while True:
            pause_s: float | None = None
            try:
                pause_s = self.advance(turn_id)
            except Exception as exc:  # one job's fault must not end the others
                log(f"turn {turn_id}: {type(exc).__name__}: {exc}")
                pause_s = 2.0
            with self.guard:
                if self.busy[turn_id]:
                    self.busy[turn_id] = False
                    continue
                del self.busy[turn_id]
                if pause_s is not None:
                    self.due[turn_id] = time.monotonic() + pause_s
                break
        self.on_done(turn_id)

    def touch_due(self, now: float) -> float | None:
        """Touch what is due; seconds until the next one."""
        with self.guard:
            ready = [turn_id for turn_id, at in self.due.items() if at <= now]
            rest = [at - now for at in self.due.values() if at > now]
        for turn_id in ready:
            self.touch(turn_id)
        return min(rest, default=None)

    def is_idle(self) -> bool:
        with self.guard:
            return not self.busy


def state_of(path: Path) -> tuple[int, int] | None:
    """Changes whenever the file does; None when it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def last_hosts(tasks: Iterable[Task]) -> dict[str, str]:
    """Where tasks of each project and of each worktree went last; the newest task comes first."""
    found: dict[str, str] = {}
    for task in tasks:
        if task.host is not None:
            found.setdefault(task.project_id, task.host)
            found.setdefault(task.worktree_id, task.host)
    return found


class Dispatcher:
    def __init__(
        self,
        store: Store,
        places: Places,
        config: Config,
        owner: Owner,
        term: int,
        *,
        on_boundary: Callable[[str], None] = lambda name: None,
        linger_s: float = LINGER_S,
    ) -> None:
        self.store, self.places, self.owner, self.term = store, places, owner, term
        self.linger_s = linger_s
        self.words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.config = config
        self.hosts = open_hosts(config, places, self._heard, everything=True)  # turns may still run on a disabled one
        self.observer = Observer(places, lambda: self.words.put("facts"))
        self.config_seen = state_of(places.config_file)
        self.driver = Driver(
            store,
            places,
            self.hosts,
            on_boundary=on_boundary,
            facts_of=self._facts_of,
            rule_of=self._rule,
            on_failure=self.observer.note_failure,
        )
        self.jobs = Jobs(self.driver.advance, lambda turn_id: self.words.put("done"))
        self.outbox = Outbox(store, self.hosts, on_boundary=on_boundary, on_pushed=self.driver.close_after_push)
        self.pushes = Jobs(self.outbox.advance, lambda origin: self.words.put("done"))
        left = store.waiting_first_turns(before=time.time() - RECENT_S) if len(config.hosts) > 1 else []
        self.former = FormerRuns(left, lambda: self.words.put("former"))
        self.last_host: dict[str, str] | None = None  # read when there is a choice of hosts
        self.fifo = open_wake_fifo(places)

    def _heard(self, host: str, method: str | None, params: dict[str, Any]) -> None:
        if method is None:
            self.words.put("all")  # the session was lost: ask about everything
        elif method == "attempt.changed":
            self.words.put(f"turn {host} {turn_of(str(params.get('attempt_id', '')))}")

    def run(self) -> None:
        """Until nothing waits, runs or is due, or somebody else leads."""
        threading.Thread(target=self._listen, daemon=True).start()
        words = {"again"}
        renewed_at = looked_at = time.monotonic()
        idle_since: float | None = None
        while True:
            now = time.monotonic()
            if now - looked_at >= SAFETY_S or "again" in words:
                words.add("all")
            if "all" in words:
                looked_at = now
            if now - renewed_at >= LEASE_TTL_S / 3:
                renewed_at = now
                if not self.store.renew_leadership(self.owner, self.term, now=time.time()):
                    log("another dispatcher leads; this one ends")
                    return
            busy = self._step(words)
            idle_since = None if busy else (idle_since or now)
            if idle_since is not None and now - idle_since >= self.linger_s:
                if self.store.resign_if_idle(self.owner, self.term):
                    return
                idle_since = None
            words = self._wait(self._pause_s(now, idle_since))

    def _step(self, words: set[str]) -> bool:
        """Do what the words ask for; False when there is no open turn at all."""
        if "wake" in words:
            self._read_configuration_again()
        if "again" in words:
            self.store.end_pauses()
        under_way = self.store.open_turns(waiting=False)
        self._look_at_changed(words, under_way)
        for turn in under_way:  # of what runs, a command at home can only have asked to cancel it
            if "all" in words or ("wake" in words and turn.cancel_requested_at is not None):
                self.jobs.touch(turn.id)
        self._claim(under_way)
        for origin in self.outbox.due_origins():
            self.pushes.touch(origin)
        open_work = bool(under_way) or self.store.has_open_turns() or self.store.next_push_due() is not None
        return open_work or not (self.jobs.is_idle() and self.pushes.is_idle())

    def _look_at_changed(self, words: set[str], under_way: list[Turn]) -> None:
        """Hosts tell of everybody's attempts; those of another home only mean that the room there may be another."""
        known, strangers = {turn.id for turn in under_way}, {}
        for word in words:
            if word.startswith("turn "):
                _, host, turn_id = word.split(" ", 2)
                if turn_id in known:
                    self.jobs.touch(turn_id)
                else:
                    strangers[turn_id] = host
        ours = find_latest(self.store, strangers)
        self.observer.expire(host for turn_id, host in strangers.items() if task_of(turn_id) not in ours)

    def _read_configuration_again(self) -> None:
        """Whoever edits the configuration and submits means the new one; a wrong one changes nothing here."""
        seen = state_of(self.places.config_file)
        if seen == self.config_seen:
            return
        self.config_seen = seen
        try:
            config = load_config(self.places)
        except ShunterError as exc:
            log(f"{exc.code}: {exc.text}; the former configuration stays in force")
            return
        # In place: the driver holds the same table. Hosts that turns still run on stay until those are settled.
        self.config = config
        self.hosts.update(open_hosts(config, self.places, self._heard, known=self.hosts, everything=True))

    def _claim(self, under_way: list[Turn]) -> None:
        entries = [self.hosts[host.name] for host in self.config.hosts if host.enabled]
        ours = Counter(turn.host for turn in under_way)
        held = self.former.held(entries)
        for turn_id, host in self.former.take_found().items():
            self._claim_row(turn_id, host)  # it needs no room: that host has accepted it before
        free_slots = sum(max(0, entry.config.slots - ours[entry.name]) for entry in entries)
        if not free_slots:
            return
        waiting = self.store.waiting_rows(now=time.time(), per_shape=free_slots)  # of one shape no more can be claimed
        rows = [row for row in waiting if row.turn_id not in held]
        if not rows:
            return
        wanted = {row.turn_id: row.requirements for row in rows}
        for claim in plan_claims(rows, self._views(entries, wanted.values(), under_way), now=time.time()).claims:
            if self._claim_row(claim.turn_id, claim.host) and self.last_host is not None:
                wishes = wanted[claim.turn_id]
                self.last_host |= {wishes.project_id: claim.host, wishes.worktree_id: claim.host}

    def _claim_row(self, turn_id: str, host: str) -> bool:
        attempt_id = new_attempt_id(turn_id)
        turn = self.store.claim_row(turn_id, host=host, attempt_id=attempt_id, owner=self.owner.id, now=time.time())
        if turn is not None:
            self.jobs.touch(turn.id)
        return turn is not None

    def _views(
        self, entries: list[HostEntry], wanted: Collection[Requirements], under_way: list[Turn]
    ) -> list[HostView]:
        """What placement goes by. A host's lease decides, this keeps us from asking in vain.

        Of one host alone nothing is asked: there is no choice, and its lease says what is to be said.
        """
        seen: dict[str, Observation | None] = {}
        if len(entries) > 1 or any(entry.config.reserve_mb is not None for entry in entries):
            self.observer.look(entries)
            seen = {entry.name: self.observer.known(entry) for entry in entries}
            if self.last_host is None:
                self.last_host = last_hosts(self.store.list_tasks(limit=REMEMBERED_TASKS))
        had: dict[str | None, set[str]] = {}
        for place in {place for wishes in wanted for place in (wishes.project_id, wishes.worktree_id)}:
            had.setdefault((self.last_host or {}).get(place), set()).add(place)
        used = slots_in_use(self.store, [entry.name for entry in entries], seen, under_way)
        drains = {drain.host: drain for drain in self.store.list_drains()}
        accounts = sorted({wishes.account for wishes in wanted if wishes.account is not None})
        rule = self._rule()
        views = []
        for entry in entries:
            known, is_full = seen.get(entry.name), used[entry.name] >= entry.config.slots
            view = view_host(
                entry.config,
                known,
                drains.get(entry.name),
                self.config.agents,
                slots_used=used[entry.name],
                reachable=not entry.client.broken_for_s and (known is None or known.error_code is None),
                had=frozenset(had.get(entry.name, ())),
                stops=NO_STOPS if is_full else find_stops(self.store, entry.name, accounts, under_way, rule),
            )
            views.append(view)
        return views

    def _rule(self) -> RetryRule:
        return retry_rule(self.config)

    def _facts_of(self, entry: HostEntry) -> Facts | None:
        seen = self.observer.known(entry)
        return seen.facts if seen is not None else None

    def _pause_s(self, now: float, idle_since: float | None) -> float:
        pauses = [SAFETY_S, LEASE_TTL_S / 3]
        due_s = self.jobs.touch_due(now)
        if due_s is not None:
            pauses.append(due_s)
        deferred = self.store.next_due(now=time.time())
        if deferred is not None:
            pauses.append(max(0.0, deferred - time.time()))
        push_due = self.store.next_push_due() if self.pushes.is_idle() else None
        if push_due is not None:
            pauses.append(max(0.0, push_due - time.time()))
        if idle_since is not None:
            pauses.append(self.linger_s)
        return min(pauses)

    def _wait(self, pause_s: float) -> set[str]:
        """The words of the next moment; empty when nothing happened."""
        words: set[str] = set()
        with contextlib.suppress(queue.Empty):
            words.add(self.words.get(timeout=max(0.001, pause_s)))
            while True:
                words.add(self.words.get_nowait())
        return words

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self.fifo, select.POLLIN)
        while True:
            poll.poll()
            lines = os.read(self.fifo, 65536).splitlines(keepends=True)
            for entry in list(self.hosts.values()):
                if ASK_ALL in lines or ANSWERS % entry.name.encode() in lines:
                    entry.client.forget_pause()
                    self.observer.expire([entry.name])
                    self.words.put("again")
            self.words.put("wake")

    def close(self) -> None:
        self.jobs.closed = self.pushes.closed = True
        self.observer.close()
        for entry in self.hosts.values():
            entry.client.close()
