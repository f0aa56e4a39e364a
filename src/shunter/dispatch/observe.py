"""What the dispatcher knows of its hosts: asked in parallel, off the main thread, only while something waits (P8).

Placement reads what is known; it waits a moment for hosts that nobody asked yet, so that a new dispatcher does not
fill whichever host comes first by name. A host that does not answer delays nobody beyond that moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ..fleet.observations import FRESH_S, Observation, failed, load_observations, record_observation
from ..fleet.places import Places
from ..wire.errors import ShunterError
from .hosts import HostEntry, probe_host, reached_as

FIRST_LOOK_S = 1.0
ASKED_AT_ONCE = 16


class Observer:
    """`on_news` is called from a thread of the pool after each answer."""

    def __init__(self, places: Places, on_news: Callable[[], None]) -> None:
        self.places, self.on_news = places, on_news
        self.pool = ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="ask")
        self.guard = threading.Lock()
        self.seen = load_observations(places)  # of a dispatcher or command before this one
        self.asking: dict[str, Future[None]] = {}
        self.asked: set[str] = set()
        self.expired: set[str] = set()

    def look(self, entries: Iterable[HostEntry]) -> None:
        """Have all asked whose facts are old; wait a moment for those that were not asked before."""
        now = time.time()
        first = []
        with self.guard:
            for entry in entries:
                known = self.known(entry)
                is_due = known is None or entry.name in self.expired or not known.is_fresh(now)
                if entry.name not in self.asking and is_due:
                    self.expired.discard(entry.name)
                    self.asking[entry.name] = self.pool.submit(self._ask, entry)
                if entry.name not in self.asked and entry.name in self.asking:
                    first.append(self.asking[entry.name])
                self.asked.add(entry.name)
        if first:
            wait(first, timeout=FIRST_LOOK_S)

    def expire(self, names: Iterable[str]) -> None:
        """Have the next look ask these hosts, however fresh what is known of them."""
        with self.guard:
            self.expired.update(names)

    def note_failure(self, entry: HostEntry, exc: ShunterError) -> None:
        """What a step met that nobody asked for facts about."""
        with self.guard:
            found = failed(self.known(entry), entry.name, reached_as(entry.config), exc, now=time.time())
            self.seen[entry.name] = found
        record_observation(self.places, found)

    def known(self, entry: HostEntry) -> Observation | None:
        found = self.seen.get(entry.name)
        return found if found is not None and found.reached_as == reached_as(entry.config) else None

    def _ask(self, entry: HostEntry) -> None:
        found = probe_host(entry, self.known(entry))
        with self.guard:
            former = self.seen.get(entry.name)
            self.seen[entry.name] = found
            self.asking.pop(entry.name, None)
        record_observation(self.places, found)
        if former is None or former.error_code != found.error_code or former.asked_at + FRESH_S < found.asked_at:
            self.on_news()

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
