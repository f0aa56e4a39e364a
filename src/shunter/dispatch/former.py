"""Turns that wait although a host has accepted them before: an older copy of the store was put back since.

Where such a turn goes to its old host again, the host says so when it is asked for a lease. But it may be about to go
to another one, and would run twice. So a new dispatcher asks every host for the first turns that were there before it
began, and holds them back until each host has answered or could not be reached. Later turns go where their task lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from ..wire.errors import ShunterError
from ..wire.messages import Jobs
from .hosts import HostEntry

RECENT_S = 2.0  # a dispatcher that a submit has started does not ask for what was submitted just now
ASKED_AT_ONCE = 10_000  # ids, of the 1 MiB that a message may have


class FormerRuns:
    """`on_news` is called from a thread of ours after each answer."""

    def __init__(self, turn_ids: Iterable[str], on_news: Callable[[], None]) -> None:
        self.turn_ids = tuple(turn_ids)
        self.on_news = on_news
        self.guard = threading.Lock()
        self.answered: dict[str, bool] = {}  # by host, from when it was asked
        self.found: dict[str, str] = {}

    def held(self, entries: Iterable[HostEntry]) -> frozenset[str]:
        """Turns that must not be claimed yet; asks hosts that were not asked."""
        if not self.turn_ids:
            return frozenset()
        with self.guard:
            for entry in entries:
                if entry.name not in self.answered:
                    self.answered[entry.name] = False
                    threading.Thread(target=self._ask, args=(entry,), daemon=True).start()
            if all(self.answered.values()):
                self.turn_ids = ()
            return frozenset(self.turn_ids)

    def take_found(self) -> dict[str, str]:
        """Host by turn, each turn once."""
        with self.guard:
            found, self.found = self.found, {}
        return found

    def _ask(self, entry: HostEntry) -> None:
        ids, known = self.turn_ids, list[str]()
        try:
            for first in range(0, len(ids), ASKED_AT_ONCE):
                answer: Jobs = entry.client.call("job.known", Jobs(ids[first : first + ASKED_AT_ONCE]))
                known += answer.ids
        except ShunterError:
            pass  # it is away, or too old to know the question: its lease says the same
        with self.guard:
            self.found |= dict.fromkeys(known, entry.name)
            self.answered[entry.name] = True
        self.on_news()
