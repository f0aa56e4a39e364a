"""How many slots of a host are taken: by turns of this home, and by what others run there. Pure.

A turn of this home takes its slot from its claim until it is settled, whatever the host says. What others take, the
host's facts tell: the slots that leases held when they were measured, less those that may have been this home's then.
These are its turns under way that were claimed before the answer came, and those that the facts name although they have
been settled since. One that was settled long before and is named all the same was given up, and holds its slot.

So nothing counts twice, and what ended after the facts were taken holds no host full. In doubt a slot counts as this
home's: a host that is thought free is asked for a lease and says no, one that is thought full is not asked at all.
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
    own = {turn.id for turn in under_way}
    held = sum(turn.claimed_at is None or turn.claimed_at <= answered_at for turn in under_way)
    for turn_id in {turn_of(attempt_id) for attempt_id in facts.running} - own:
        last = latest.get(task_of(turn_id))
        held += last is not None and _has_ended_since(last, turn_id, answered_at - ASKING_S)
    return len(under_way) + max(0, facts.slots_used - held)


def _has_ended_since(last: Turn, turn_id: str, since: float) -> bool:
    return last.id != turn_id or (last.settled_at is not None and last.settled_at >= since)
