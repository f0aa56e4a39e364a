"""The pool as it is: what configuration, operator and the hosts themselves say of each host (`shunter hosts`)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed

from ..agents.table import COMMANDS
from ..dispatch.hosts import (
    ANY_PROFILE,
    DISK_TROUBLE,
    HostEntry,
    memory_budget_mb,
    open_hosts,
    probe_host,
    reached_as,
    view_host,
)
from ..fleet.config import HostConfig
from ..fleet.observations import Observation, asking, failed, load_observations, record_observation
from ..model.records import Drain, Row, Turn
from ..policy.placement import HostView, Placement, decide_placement
from ..wire.errors import ShunterError
from ..wire.messages import Facts
from ..wire.record import dataclass
from .home import Home
from .stops import find_account_stops

ASKED_AT_ONCE = 16
LIMIT_S = 5.0  # for all hosts together; a slow link needs two seconds for its first connection
INSIST_LIMIT_S = 15.0  # with --refresh: longer than ssh's own ConnectTimeout


@dataclass(frozen=True)
class HostStatus:
    """One host for people and programs. state: ready, full, drained, disabled, unknown, untrusted,
    outdated, unfit."""

    name: str
    state: str
    reason: str | None
    hint: str | None
    ssh: str | None
    slots: int
    slots_used: int  # by turns of this home
    tags: tuple[str, ...]
    memory_budget_mb: int | None
    agents: tuple[str, ...] | None  # None: not known
    facts_age_s: float | None  # None: never answered
    facts: Facts | None
    version: str | None
    system: str | None
    cpu_busy_ratio: float | None = None  # between the last two answers, when there were two
    stopped: tuple[str, ...] = ()  # accounts that get no task, each in words


def observe_pool(home: Home, *, refresh: bool = False) -> list[HostStatus]:
    """Facts at most two seconds old; one process asks, others wait for what it finds. In the configuration's order."""
    before = load_observations(home.places)
    seen = before
    entries = open_hosts(home.config, home.places, everything=True)
    if _due(entries, seen, refresh=refresh):
        started = time.time()
        with asking(home.places, limit_s=INSIST_LIMIT_S if refresh else LIMIT_S) as mine:
            seen = load_observations(home.places)
            due = _due(entries, seen, refresh=refresh, since=started)
            if mine and due:
                found = _ask(due, seen, insists=refresh)
                for each in found.values():
                    record_observation(home.places, each)
                seen = {**seen, **found}
    return pool_status(home, seen, before)


def _due(
    entries: Mapping[str, HostEntry], seen: Mapping[str, Observation], *, refresh: bool, since: float | None = None
) -> list[HostEntry]:
    """Whom to ask. With `refresh` everybody whom nobody asked after `since`."""
    now = time.time()
    due = []
    for entry in entries.values():
        known = seen.get(entry.name)
        if (
            known is None
            or known.reached_as != reached_as(entry.config)
            or (since is None or known.asked_at < since if refresh else not known.is_fresh(now))
        ):
            due.append(entry)
    return due


def _ask(due: list[HostEntry], seen: Mapping[str, Observation], *, insists: bool) -> dict[str, Observation]:
    """All in parallel; whoever does not answer in time is unknown, and its thread is left behind."""
    limit_s = INSIST_LIMIT_S if insists else LIMIT_S
    pool = ThreadPoolExecutor(ASKED_AT_ONCE, thread_name_prefix="ask")
    asked = {pool.submit(probe_host, entry, seen.get(entry.name)): entry for entry in due}
    found: dict[str, Observation] = {}
    try:
        for future in as_completed(asked, timeout=limit_s):
            found[asked[future].name] = future.result()
    except TimeoutError:
        pass
    for entry in due:
        if entry.name not in found:
            late = ShunterError("HOST_UNREACHABLE", f"host {entry.name}: no answer within {limit_s:.0f} s")
            way = reached_as(entry.config)
            found[entry.name] = failed(seen.get(entry.name), entry.name, way, late, now=time.time())
        entry.client.close()
    pool.shutdown(wait=False, cancel_futures=True)
    return found


def pool_status(
    home: Home, seen: Mapping[str, Observation], before: Mapping[str, Observation] | None = None
) -> list[HostStatus]:
    drains, turns = load_use(home)
    found = []
    for host in home.config.hosts:
        known = seen.get(host.name)
        if known is not None and known.reached_as != reached_as(host):
            known = None
        used = sum(1 for turn in turns if turn.host == host.name)
        stops = find_account_stops(home, host.name, turns)
        view = view_host(host, known, drains.get(host.name), home.config.agents, slots_used=used, stops=stops)
        earlier = (before or {}).get(host.name)
        found.append(_status(host, view, known, earlier.facts if earlier else None))
    return found


def load_use(home: Home) -> tuple[dict[str, Drain], list[Turn]]:
    """Drains by host, and the turns under way; nothing before the first task or drain."""
    if not home.was_used:
        return {}, []
    store = home.reading
    return {drain.host: drain for drain in store.list_drains()}, store.open_turns(waiting=False)


def _status(host: HostConfig, view: HostView, known: Observation | None, earlier: Facts | None) -> HostStatus:
    facts = known.facts if known else None
    state, reason = state_of(view, known)
    agents = None
    if facts is not None and view.agents is not None:
        agents = tuple(sorted(name for name in view.agents if name not in COMMANDS and not name.endswith(ANY_PROFILE)))
    return HostStatus(
        name=host.name,
        state=state,
        reason=reason,
        hint=known.hint if known is not None and state in ("unknown", "untrusted", "outdated", "unfit") else None,
        ssh=host.ssh,
        slots=host.slots,
        slots_used=view.slots_used,
        tags=host.tags,
        memory_budget_mb=memory_budget_mb(host, facts),
        agents=agents,
        facts_age_s=max(0.0, time.time() - known.answered_at) if known and known.answered_at else None,
        facts=facts,
        version=known.hello.version if known and known.hello else None,
        system=facts.system if facts else None,
        cpu_busy_ratio=cpu_busy_ratio(earlier, facts) if facts else None,
        stopped=tuple({**view.stopped, **view.tried}.values()),
    )


def state_of(view: HostView, known: Observation | None) -> tuple[str, str | None]:
    """One word and its reason; what lasts comes before what passes."""
    if not view.enabled:
        return "disabled", "switched off in the configuration"
    if view.outdated:
        return "outdated", view.unreached
    if known is not None and not view.reachable and known.error_code == "HOST_KEY":
        return "untrusted", view.unreached
    if known is not None and not view.reachable and known.error_code in DISK_TROUBLE:
        return "unfit", view.unreached
    if known is None or not view.reachable:
        return "unknown", view.unreached or "not asked yet"
    if view.held_back is not None:
        return ("drained" if view.held_back.startswith("drained") else "unfit"), view.held_back
    if view.slots_used >= view.slots:
        return "full", None
    return "ready", None


def cpu_busy_ratio(before: Facts | None, after: Facts) -> float | None:
    """Share of all cores' time spent busy between two answers; None without two of one boot, or when no tick passed."""
    if before is None or before.boot_id != after.boot_id:
        return None
    counters = (before.cpu_busy_ticks, before.cpu_ticks, after.cpu_busy_ticks, after.cpu_ticks)
    if any(each is None for each in counters):
        return None
    busy_before, all_before, busy_after, all_after = (each or 0 for each in counters)
    if all_after <= all_before or busy_after < busy_before:
        return None
    return min(1.0, (busy_after - busy_before) / (all_after - all_before))


def explain_row(home: Home, row: Row) -> Placement:
    """Why each host does not take the row now (X14): from what was last seen, no host is asked."""
    seen = load_observations(home.places)
    drains, turns = load_use(home)
    views = [
        view_host(
            host,
            seen.get(host.name),
            drains.get(host.name),
            home.config.agents,
            slots_used=sum(1 for turn in turns if turn.host == host.name),
            stops=find_account_stops(home, host.name, turns),
        )
        for host in home.config.hosts
    ]
    return decide_placement(row, views, now=time.time())
