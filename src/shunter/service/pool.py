"""The pool as it is: what configuration, operator and the hosts themselves say of each host (`shunter hosts`)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Container, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

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
from ..dispatch.slots import slots_in_use
from ..dispatch.wake import tell_answers
from ..fleet.config import HostConfig
from ..fleet.observations import Observation, asking, failed, load_observations, record_observation
from ..fleet.ssh import root_remedy
from ..fleet.transport import LocalTransport
from ..model.records import Drain, Row, Turn
from ..policy.placement import HostView, Placement, decide_placement, find_twins
from ..wire.errors import ShunterError
from ..wire.messages import Facts
from ..wire.record import dataclass
from .home import Home
from .stops import find_account_stops
from .twins import twin_remedy

ASKED_AT_ONCE = 16
FAILURE_HOLDS_S = 90.0  # longer than anybody leaves alone a host that a turn waits for
LIMIT_S = 5.0  # for all hosts together; a slow link needs two seconds for its first connection
INSIST_LIMIT_S = 15.0  # with --refresh: longer than ssh's own ConnectTimeout


@dataclass(frozen=True)
class HostStatus:
    """One host for people and programs. state: ready, full, drained, disabled, duplicate, unknown, untrusted,
    outdated, unfit."""

    name: str
    state: str
    reason: str | None
    hint: str | None
    ssh: str | None
    slots: int  # 0 for a duplicate: its machine is counted under the other name
    slots_used: int  # by turns of this home, and by others as far as the facts tell
    tags: tuple[str, ...]
    memory_budget_mb: int | None
    agents: tuple[str, ...] | None  # None: not known
    facts_age_s: float | None  # None: never answered
    facts: Facts | None
    version: str | None
    system: str | None
    cpu_busy_ratio: float | None = None  # between the last two answers, when there were two
    stopped: tuple[str, ...] = ()  # accounts that get no task, each in words


def observe_pool(home: Home, *, refresh: bool = False, anew: Container[str] = ()) -> list[HostStatus]:
    """Facts at most two seconds old; one process asks, others wait for what it finds. In the configuration's order.

    `anew`: names of hosts that are asked in any case, unless they did not answer a moment ago.
    """
    before = load_observations(home.places)
    entries = open_hosts(home.config, home.places, everything=True)
    return pool_status(home, _look_at(home, entries, before, refresh=refresh, anew=anew), before)


def acquaint(home: Home) -> dict[str, Observation]:
    """What was last seen of the pool, with those asked that never answered: then it is known which are one machine."""
    seen = load_observations(home.places)
    strangers = {
        name: entry
        for name, entry in open_hosts(home.config, home.places).items()
        if (name not in seen or seen[name].reached_as != reached_as(entry.config) or seen[name].hello is None)
        and _may_have_id(entry)
    }
    return _look_at(home, strangers, seen, refresh=False)


def _may_have_id(entry: HostEntry) -> bool:
    """False for this machine while nothing ever ran on it: no helper is started to find that out."""
    transport = entry.client.transport
    return not isinstance(transport, LocalTransport) or (transport.data_root / "host_id").exists()


def _look_at(
    home: Home,
    entries: Mapping[str, HostEntry],
    seen: dict[str, Observation],
    *,
    refresh: bool,
    anew: Container[str] = (),
) -> dict[str, Observation]:
    """What is known of the pool once those of the entries were asked whose facts are old."""
    if not _due(entries, seen, refresh=refresh, anew=anew):
        return seen
    started = time.time()
    with asking(home.places, limit_s=INSIST_LIMIT_S if refresh else LIMIT_S) as mine:
        seen = load_observations(home.places)
        due = _due(entries, seen, refresh=refresh, anew=anew, since=started)
        if mine and due:
            found = _ask(due, seen, insists=refresh)
            for name, each in found.items():
                record_observation(home.places, each)
                if each.error_code is None and (refresh or (name in seen and seen[name].error_code is not None)):
                    tell_answers(home.places, name)
            seen = {**seen, **found}
    return seen


def _due(
    entries: Mapping[str, HostEntry],
    seen: Mapping[str, Observation],
    *,
    refresh: bool,
    anew: Container[str] = (),
    since: float | None = None,
) -> list[HostEntry]:
    """Whom to ask. With `refresh` everybody whom nobody asked after `since`, with `anew` those that answered last."""
    now = time.time()
    due = []
    for entry in entries.values():
        known = seen.get(entry.name)
        insists = refresh or (entry.name in anew and known is not None and not known.failures)
        if (
            known is None
            or known.reached_as != reached_as(entry.config)
            or (since is None or known.asked_at < since if insists else not known.is_fresh(now))
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
    turns, views = _views(home, seen)
    ours = Counter(turn.host for turn in turns)
    twins = find_twins(views)
    found = []
    for host, view in zip(home.config.hosts, views, strict=True):
        earlier = (before or {}).get(host.name)
        known = known_as(host, seen)
        status = _status(host, view, known, earlier.facts if earlier else None, open_turns=ours[host.name])
        first = twins.get(host.name)
        if first is not None:
            reason = f"it is the same machine and data root as {first}"
            status = replace(
                status, state="duplicate", reason=reason, hint=twin_remedy(host.name, first), slots=0, stopped=()
            )
        found.append(status)
    return found


def known_as(host: HostConfig, seen: Mapping[str, Observation]) -> Observation | None:
    """What was last seen of the host by its present way."""
    known = seen.get(host.name)
    return known if known is not None and known.reached_as == reached_as(host) else None


def _views(home: Home, seen: Mapping[str, Observation]) -> tuple[list[Turn], list[HostView]]:
    """The turns under way, and every host of the configuration as placement sees it."""
    drains, turns = load_use(home)
    known = {host.name: known_as(host, seen) for host in home.config.hosts}
    used = slots_in_use(home.reading if home.was_used else None, known, known, turns)
    views = [
        view_host(
            host,
            known[host.name],
            drains.get(host.name),
            home.config.agents,
            slots_used=used[host.name],
            stops=find_account_stops(home, host.name, turns),
        )
        for host in home.config.hosts
    ]
    return turns, views


def load_use(home: Home) -> tuple[dict[str, Drain], list[Turn]]:
    """Drains by host, and the turns under way; nothing before the first task or drain."""
    if not home.was_used:
        return {}, []
    store = home.reading
    return {drain.host: drain for drain in store.list_drains()}, store.open_turns(waiting=False)


def _status(
    host: HostConfig, view: HostView, known: Observation | None, earlier: Facts | None, *, open_turns: int
) -> HostStatus:
    facts = known.facts if known else None
    state, reason = state_of(view, known)
    hint = known.hint if known is not None and state in ("unknown", "untrusted", "outdated", "unfit") else None
    if known is not None and known.error_code == "DATA_ROOT_MISSING" and state == "unknown" and known.hello is not None:
        words, hint = gone_root(host.name, known.hello.data_root, open_turns=open_turns)
        reason = f"{known.error_code}: {words}"
    agents = None
    if facts is not None and view.agents is not None:
        agents = tuple(sorted(name for name in view.agents if name not in COMMANDS and not name.endswith(ANY_PROFILE)))
    return HostStatus(
        name=host.name,
        state=state,
        reason=reason,
        hint=hint,
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


def gone_root(name: str, path: str, *, open_turns: int) -> tuple[str, str]:
    """Of a data root that was there before: what is to be said, and what helps."""
    words = f"the data root {path} is not there any more, or it is empty"
    remedy = root_remedy(name, open_turns=open_turns)
    if not open_turns:
        return words, remedy
    turns = "1 turn of yours is" if open_turns == 1 else f"{open_turns} turns of yours are"
    return f"{words}; {turns} open there", remedy


def state_of(view: HostView, known: Observation | None) -> tuple[str, str | None]:
    """One word and its reason; what lasts comes before what passes."""
    if not view.enabled:
        return "disabled", "switched off in the configuration"
    if view.outdated or (known is not None and known.error_code == "DATA_ROOT_MISSING" and known.hello is None):
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
    _, views = _views(home, recent_observations(home))
    return decide_placement(row, views, now=time.time())


def recent_observations(home: Home) -> dict[str, Observation]:
    """Without failures that may be over: old ones, and those of hosts that have granted a lease since."""
    leased_at: dict[str | None, float] = {}
    for turn in load_use(home)[1]:
        leased_at[turn.host] = max(leased_at.get(turn.host, 0.0), turn.leased_at or 0.0)
    since = time.time() - FAILURE_HOLDS_S
    return {
        name: known
        for name, known in load_observations(home.places).items()
        if known.error_code is None or known.asked_at > max(since, leased_at.get(name, 0.0))
    }
