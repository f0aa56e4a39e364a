"""Which rows to claim now, for which hosts (P4). Pure; the store claims, and the host's lease decides in the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..model.records import Row
from .placement import HostView, find_duplicates, rank_key, reason_against


class Claim(NamedTuple):
    turn_id: str
    host: str


@dataclass(frozen=True, slots=True)
class ClaimPlan:
    """What to claim, in the order of the queue. Why a row is not in it: `decide_placement`."""

    claims: tuple[Claim, ...]


def plan_claims(rows: Iterable[Row], hosts: Sequence[HostView], *, now: float) -> ClaimPlan:
    """Give each row in turn the best host that has room for it; rows that fit nowhere now delay nobody.

    Rows are taken in the order they come. What a claim takes is not given twice. Stops when no slot is left.
    """
    duplicates = find_duplicates(hosts)
    room = {host.name: host for host in hosts if host.name not in duplicates and host.slots > host.slots_used}
    claims: list[Claim] = []
    hopeless: set[object] = set()  # room only shrinks: what one row did not get, no equal row gets after it
    for row in rows:
        if not room:
            break
        shape = (row.pinned_host, row.requirements)
        if shape in hopeless or (row.not_before is not None and row.not_before > now):
            continue
        fit = [host for host in room.values() if reason_against(row, host, now=now) is None]
        if not fit:
            hopeless.add(shape)
            continue
        best = min(fit, key=lambda host: rank_key(row, host))
        claims.append(Claim(row.turn_id, best.name))
        left = _less(best, row)
        if left.slots > left.slots_used:
            room[best.name] = left
        else:
            del room[best.name]
    return ClaimPlan(tuple(claims))


def _less(host: HostView, row: Row) -> HostView:
    """The host after it has taken the row."""
    memory_mb = row.requirements.memory_mb or 0
    available_mb = host.memory_available_mb
    account = row.requirements.account or ""
    return replace(
        host,
        stopped={**host.stopped, account: host.tried[account]} if account in host.tried else host.stopped,
        slots_used=host.slots_used + row.requirements.slots,
        memory_reserved_mb=host.memory_reserved_mb + memory_mb,
        memory_available_mb=None if available_mb is None else max(0, available_mb - memory_mb),
    )
