"""Which host a row goes to, and why each other host was not taken (P2, P4, X14). Pure: same input, same answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model.records import Row


@dataclass(frozen=True, slots=True)
class HostView:
    """A host as home sees it now. Facts are measured or None, never invented (P3)."""

    name: str
    slots: int
    slots_used: int = 0
    memory_mb: int | None = None  # budget for reservations; None = not counted
    memory_reserved_mb: int = 0
    memory_available_mb: int | None = None
    disk_free_mb: int | None = None
    host_id: str | None = None
    enabled: bool = True
    reachable: bool = True
    unreached: str | None = None  # words: why not
    outdated: bool = False  # speaks another protocol version
    held_back: str | None = None  # words: drained, under pressure, set aside by the circuit breaker, …
    agents: frozenset[str] | None = None  # usable, as agent@profile too; None = nobody looked, which excludes nothing
    signed_out: frozenset[str] = frozenset()  # agents that are there and say that nobody is signed in
    stopped: Mapping[str, str] = field(default_factory=dict)  # accounts that get no task, and why
    tried: Mapping[str, str] = field(default_factory=dict)  # those that get one task, to see whether they work again
    capabilities: frozenset[str] = frozenset()
    had: frozenset[str] = frozenset()  # ids of the projects and worktrees whose last task came here


class Reason(NamedTuple):
    """A stable code for programs and words for people."""

    code: str
    words: str


@dataclass(frozen=True, slots=True)
class Placement:
    host: str | None
    rejected: tuple[tuple[str, Reason], ...]  # in name order


def decide_placement(row: Row, hosts: Sequence[HostView], *, now: float) -> Placement:
    """The best host that fits, and the reason against every other one that does not.

    Of hosts that fit and were not taken nothing is said: they were good enough, and later in the order.
    """
    duplicates = find_duplicates(hosts)
    fit: list[HostView] = []
    rejected: dict[str, Reason] = {}
    for host in hosts:
        reason = duplicates.get(host.name) or reason_against(row, host, now=now)
        if reason is None:
            fit.append(host)
        else:
            rejected[host.name] = reason
    if row.pinned_host is not None and all(host.name != row.pinned_host for host in hosts):
        rejected[row.pinned_host] = Reason("HOST_UNKNOWN", f"it is not in the pool: shunter cancel {row.task_id}")
    best = min(fit, key=lambda host: rank_key(row, host), default=None)
    return Placement(host=best.name if best else None, rejected=tuple(sorted(rejected.items())))


def reason_against(row: Row, host: HostView, *, now: float) -> Reason | None:
    """The first thing that speaks against this host, lasting ones before passing ones; None when it fits now."""
    wishes = row.requirements
    if row.pinned_host is not None and row.pinned_host != host.name:
        return Reason("PINNED", f"the task is pinned to {row.pinned_host}")
    if not host.enabled:
        return Reason("DISABLED", "it is switched off in the configuration")
    if host.outdated:
        return Reason("HOST_OUTDATED", f"the helper of this version is missing: shunter host setup {host.name}")
    if host.agents is not None and not host.agents & {wishes.agent, wishes.agent.partition("@")[0] + "@*"}:
        if wishes.agent in host.signed_out:
            text = f"nobody is signed in to {wishes.agent} there: shunter host check {host.name}"
            return Reason("AGENT_SIGNED_OUT", text)
        return Reason("AGENT_MISSING", f"it has no usable {wishes.agent}")
    if wishes.account is not None and wishes.account in host.stopped:
        return Reason("ACCOUNT_STOPPED", host.stopped[wishes.account])
    missing = sorted(set(wishes.capabilities) - host.capabilities)
    if missing:
        remedy = (
            f" (in its tags, once `shunter host check {host.name} --origin URL` holds)" if _is_origin(missing) else ""
        )
        return Reason("CAPABILITY_MISSING", f"it lacks {', '.join(missing)}{remedy}")
    if wishes.slots > host.slots:
        return Reason("TOO_SMALL", f"needs {wishes.slots} slots, it has {host.slots}")
    if wishes.memory_mb and host.memory_mb is not None and wishes.memory_mb > host.memory_mb:
        return Reason("TOO_SMALL", f"needs {wishes.memory_mb} MB, its budget is {host.memory_mb} MB")
    if not host.reachable:
        return Reason("HOST_UNREACHABLE", host.unreached or "it does not answer")
    if host.held_back is not None:
        return Reason("HELD_BACK", host.held_back)
    if row.not_before is not None and row.not_before > now:
        return Reason("NOT_YET", f"its time comes in {row.not_before - now:.0f} s")
    return _reason_of_room(row, host)


def _is_origin(missing: Sequence[str]) -> bool:
    return all(each.startswith("origin:") for each in missing)


def _reason_of_room(row: Row, host: HostView) -> Reason | None:
    wishes = row.requirements
    free_slots = host.slots - host.slots_used
    if wishes.slots > free_slots:
        return Reason("NO_SLOT", f"{max(0, free_slots)} of {host.slots} slots free")
    if wishes.memory_mb:
        if host.memory_mb is not None and wishes.memory_mb > host.memory_mb - host.memory_reserved_mb:
            left_mb = max(0, host.memory_mb - host.memory_reserved_mb)
            return Reason("NO_MEMORY", f"needs {wishes.memory_mb} MB, {left_mb} MB of its budget left")
        if host.memory_available_mb is not None and wishes.memory_mb > host.memory_available_mb:
            return Reason("NO_MEMORY", f"needs {wishes.memory_mb} MB, {host.memory_available_mb} MB free")
    return None


def rank_key(row: Row, host: HostView) -> tuple[bool, bool, bool, int, bool, int, str]:
    """Smallest is best: same worktree, same project, most memory, most disk, name. A missing fact sorts last."""
    wishes = row.requirements
    return (
        wishes.worktree_id not in host.had,
        wishes.project_id not in host.had,
        host.memory_available_mb is None,
        -(host.memory_available_mb or 0),
        host.disk_free_mb is None,
        -(host.disk_free_mb or 0),
        host.name,
    )


def find_duplicates(hosts: Sequence[HostView]) -> Mapping[str, Reason]:
    """Hosts that cannot be told apart by name, and names that mean the same machine."""
    names = Counter(host.name for host in hosts)
    found = {name: Reason("DUPLICATE", "several hosts have this name") for name, times in names.items() if times > 1}
    alone = [host for host in hosts if host.name not in found]
    for name, first in find_twins(alone).items():
        found[name] = Reason("DUPLICATE", f"it is the same machine as {first}")
    return found


def find_twins(hosts: Sequence[HostView]) -> Mapping[str, str]:
    """Names that mean another one's machine and data root, with the name that keeps it: the first of the enabled ones.

    `hosts` come in the configuration's order, so that the answer stays the same until somebody changes that.
    """
    owner: dict[str, str] = {}
    found: dict[str, str] = {}
    for host in hosts:
        if host.host_id is not None and host.enabled:
            first = owner.setdefault(host.host_id, host.name)
            if first != host.name:
                found[host.name] = first
    return found
