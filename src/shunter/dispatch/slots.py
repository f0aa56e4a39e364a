"""How many slots of each host are taken, with what the store tells of the attempts that hosts name."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping

from ..fleet.observations import Observation
from ..model.records import Turn
from ..policy.slots import count_slots
from ..store.contract import Store
from ..wire.ids import task_of, turn_of


def slots_in_use(
    store: Store | None, hosts: Collection[str], seen: Mapping[str, Observation | None], under_way: Collection[Turn]
) -> dict[str, int]:
    """By host. `seen`: of the present ways to them. `store` None: nothing was submitted yet."""
    facts = {host: known.facts for host in hosts if (known := seen.get(host)) is not None}
    named = {turn_of(attempt_id) for each in facts.values() if each is not None for attempt_id in each.running}
    latest = find_latest(store, named - {turn.id for turn in under_way}) if store is not None else {}
    ours: dict[str, list[Turn]] = {host: [] for host in hosts}
    for turn in under_way:
        if turn.host in ours:
            ours[turn.host].append(turn)
    found = {}
    for host, turns in ours.items():
        known = seen.get(host)
        answered_at = known.answered_at if known is not None else None
        found[host] = count_slots(turns, facts.get(host), answered_at, latest=latest, now=time.time())
    return found


def find_latest(store: Store, turn_ids: Iterable[str]) -> dict[str, Turn]:
    """The last turn of each task that is this home's, by task id; of another home's nothing is known here."""
    task_ids = sorted({task_of(turn_id) for turn_id in turn_ids})
    return store.load_latest_turns(task_ids) if task_ids else {}
