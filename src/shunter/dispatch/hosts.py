"""The hosts of the configuration, each with a client; nothing is contacted until it is asked something.

And what home knows of each: one question to it, and the view that placement decides on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..agents.table import COMMANDS, MODULES, load
from ..fleet.client import HostClient
from ..fleet.config import AgentConfig, Config, HostConfig
from ..fleet.observations import Observation, answered, failed
from ..fleet.places import Places
from ..fleet.ssh import SshTransport
from ..fleet.transport import LocalTransport, Transport
from ..model.records import Drain
from ..policy.placement import HostView
from ..wire.errors import ShunterError
from ..wire.messages import Facts, FactsAsk
from .stops import NO_STOPS, Stops

# Of an attempt that was being accepted: the host may hold it; only its word or a tombstone ends the doubt.
UNKNOWN_OUTCOME = ("HOST_UNREACHABLE", "DEADLINE")
NOT_REACHED = (
    *UNKNOWN_OUTCOME,
    *("HOST_KEY", "HOST_AUTH", "SSH_CONFIG", "HOST_OUTDATED", "DATA_ROOT_MISSING", "HOST_INCAPABLE"),
)
DISK_TROUBLE = ("DISK_FULL", "DISK_UNUSABLE")  # of the host, which answers all the same
LEAST_FREE_MB = 64  # less, and not even the records of a turn are sure to find room

HostListener = Callable[[str, str | None, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class HostEntry:
    """A host of the pool: what the configuration says of it, and its client."""

    config: HostConfig
    client: HostClient

    @property
    def name(self) -> str:
        return self.config.name


def open_hosts(
    config: Config,
    places: Places,
    listener: HostListener | None = None,
    *,
    known: Mapping[str, HostEntry] = MappingProxyType({}),
    everything: bool = False,
) -> dict[str, HostEntry]:
    """Entries of the enabled hosts, or of all; nothing is contacted yet.

    A known one, reached as before, keeps its client.
    """
    entries = {}
    for host in config.hosts:
        if not (host.enabled or everything):
            continue
        old = known.get(host.name)
        if old is not None and how_reached(old.config) == how_reached(host):
            entries[host.name] = HostEntry(host, old.client)
            continue
        client = HostClient(make_transport(host, places), partial(listener, host.name) if listener else None)
        entries[host.name] = HostEntry(host, client)
    return entries


def make_transport(host: HostConfig, places: Places, *, extra: tuple[str, ...] = ()) -> Transport:
    """`extra`: further options of ssh, before all others."""
    if host.ssh is None:
        root = Path(host.data_root).expanduser() if host.data_root else places.host_data_root
        return LocalTransport(host.name, root, host.python)
    command = host.ssh_command or ("ssh",)
    return SshTransport(host.name, host.ssh, data_root=host.data_root, python=host.python, command=command, extra=extra)


def how_reached(host: HostConfig) -> tuple[object, ...]:
    return (host.ssh, host.ssh_command, host.data_root, host.python)


def reached_as(host: HostConfig) -> str:
    """The way to a host as text: observations of another way are of another host."""
    return repr(how_reached(host))


def sandbox_names() -> tuple[str, ...]:
    """The programs that sandboxes of the built-in agents need."""
    return tuple(sorted({each for adapter in MODULES for each in load(adapter).sandbox_programs()}))


def probe_host(entry: HostEntry, before: Observation | None) -> Observation:
    """Ask the host for its facts; a failure is an observation too. Never raises what a host can cause."""
    way = reached_as(entry.config)
    try:
        hello = entry.client.session().hello
        ask = FactsAsk(sandbox_names(), agents=True)
        facts: Facts = entry.client.call("host.facts", ask, limit_s=60.0)
    except ShunterError as exc:
        return failed(before, entry.name, way, exc, now=time.time())
    return answered(entry.name, way, hello, facts, now=time.time())


def memory_budget_mb(host: HostConfig, facts: Facts | None) -> int | None:
    """What reservations may add up to; None: not counted, also while `reserve_mb` has no measured total yet."""
    if host.reserve_mb is None:
        return host.memory_mb
    total_mb = facts.memory_total_mb if facts is not None else None
    return None if total_mb is None else max(0, total_mb - host.reserve_mb)


def view_host(
    host: HostConfig,
    seen: Observation | None,
    drain: Drain | None,
    agents: Mapping[str, AgentConfig],
    *,
    slots_used: int,
    reachable: bool | None = None,
    had: frozenset[str] = frozenset(),
    stops: Stops = NO_STOPS,
) -> HostView:
    """What placement decides on. `reachable` None: as the last observation has it.

    `had`: ids of the projects and worktrees whose last task went there, so that it has their objects already.
    """
    if seen is not None and seen.reached_as != reached_as(host):
        seen = None
    facts, hello = (seen.facts, seen.hello) if seen is not None else (None, None)
    broken = seen is not None and seen.error_code is not None
    return HostView(
        host.name,
        host.slots,
        slots_used=slots_used,
        memory_mb=memory_budget_mb(host, facts),
        memory_reserved_mb=facts.memory_reserved_mb if facts else 0,
        memory_available_mb=facts.memory_available_mb if facts else None,
        disk_free_mb=facts.disk_free_mb if facts else None,
        host_id=hello.host_id if hello else None,
        enabled=host.enabled,
        reachable=not broken if reachable is None else reachable,
        unreached=f"{seen.error_code}: {seen.error_text}" if broken and seen is not None else None,
        outdated=broken and seen is not None and seen.error_code == "HOST_OUTDATED",
        held_back=held_back(seen, drain),
        agents=agents_of(facts, agents),
        signed_out=signed_out_of(facts),
        stopped=stops.stopped,
        tried=stops.tried,
        capabilities=frozenset(host.tags),
        had=had,
    )


def held_back(seen: Observation | None, drain: Drain | None) -> str | None:
    """Words for why it takes no new turns although it answers."""
    if drain is not None:
        words = f"drained by {drain.actor}" + (f": {drain.reason}" if drain.reason else "")
        return f"{words}; once that is mended: shunter host setup {drain.host}" if drain.actor == SETUP else words
    if seen is not None and seen.hello is not None:
        if not seen.hello.os.startswith("linux"):
            return f"turns run on Linux only in this version, and it is {seen.hello.os}"
        if not seen.hello.git:
            return "git is not installed there"
    if seen is not None and seen.facts is not None and seen.facts.unknown_attempts:
        return unknown_words(seen.facts)
    free_mb = seen.facts.disk_free_mb if seen is not None and seen.facts is not None else None
    if free_mb is not None and free_mb < LEAST_FREE_MB:
        return f"its disk is full, {free_mb} MB are free: make room there"
    return None


def unknown_words(facts: Facts) -> str:
    """What runs on a host of which its ledger knows nothing, and what to do about it."""
    each = (f"{name} (processes {', '.join(map(str, pids))})" for name, pids in facts.unknown_attempts.items())
    words = f"an older copy of its data root was put back while turns ran; in no ledger is {', '.join(each)}"
    return f"{words}: wait for the end of these processes, or end them there"


ANY_PROFILE = "@*"
SETUP = "set-up"  # the actor of drains after a proof that failed


def agents_of(facts: Facts | None, configured: Mapping[str, AgentConfig]) -> frozenset[str] | None:
    """Agents that a turn may use, as `agent` and `agent@profile`; None when nobody looked.

    Its program is there and it says that it is signed in; no answer counts as no. Nobody asks one that cannot tell, nor
    one that somebody configured with a command of its own: those are taken at their word, with any profile.
    """
    if facts is None or facts.agents is None:
        return None
    found = {name for name, each in facts.agents.items() if each.signed_in or not each.can_be_asked}
    trusted = {*COMMANDS, *(each.adapter for each in configured.values() if each.command)}
    return frozenset({*found, *trusted, *(name + ANY_PROFILE for name in trusted)})


def signed_out_of(facts: Facts | None) -> frozenset[str]:
    if facts is None or facts.agents is None:
        return frozenset()
    return frozenset(name for name, each in facts.agents.items() if each.can_be_asked and not each.signed_in)
