"""How many slots of a host are taken: by turns of this home, and by what others run there. Pure.

A turn of this home takes its slot from its claim until it is settled, whatever the host says. What others take, the
host's facts tell by the attempts that they name: one slot for each that is neither of a turn under way here nor of one
that was settled since. One of this home that was settled long before and is named all the same was given up, and holds
its slot.

So nothing counts twice, and what ended after the facts were taken holds no host full. Leases that are not accepted yet
have no name and are not counted, nor are further slots of another home's turn: a host that is thought free is asked for
a lease and says no, one that is thought full is not asked at all.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..model.records import Turn
from ..wire.ids import task_of, turn_of
from ..wire.messages import Facts

FACTS_HOLD_S = 10.0  # what others take may be anything after that
ASKING_S = 5.0  # from the measuring of facts to their answer, at most


def count_slots(
    under_way: Collection[Turn],
    facts: Facts | None,
    answered_at: float | None,
    *,
    latest: Mapping[str, Turn],
    now: float,
) -> int:
    """`under_way`: this home's turns on the host. `latest`: the last turn of every task of this home, by task id, that
    has an attempt among those that the facts name."""
    if facts is None or answered_at is None or not 0 <= now - answered_at <= FACTS_HOLD_S:
        return len(under_way)
    named = {turn_of(attempt_id) for attempt_id in facts.running}
    others = 0
    for turn_id in named - {turn.id for turn in under_way}:
        last = latest.get(task_of(turn_id))
        others += last is None or not _has_ended_since(last, turn_id, answered_at - ASKING_S)
    return len(under_way) + others


def _has_ended_since(last: Turn, turn_id: str, since: float) -> bool:
    return last.id != turn_id or (last.settled_at is not None and last.settled_at >= since)
