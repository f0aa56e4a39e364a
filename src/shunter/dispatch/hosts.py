"""The hosts of the configuration, each with a client; nothing is contacted until it is asked something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from ..fleet.client import HostClient
from ..fleet.config import Config, HostConfig
from ..fleet.places import Places
from ..fleet.transport import LocalTransport

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
) -> dict[str, HostEntry]:
    """Entries of the enabled hosts; nothing is contacted yet. A known one, reached as before, keeps its client."""
    entries = {}
    for host in config.hosts:
        if not host.enabled:
            continue
        old = known.get(host.name)
        if old is not None and how_reached(old.config) == how_reached(host):
            entries[host.name] = HostEntry(host, old.client)
            continue
        transport = LocalTransport(host.name, host.data_root or places.host_data_root, host.python)
        client = HostClient(transport, partial(listener, host.name) if listener else None)
        entries[host.name] = HostEntry(host, client)
    return entries


def how_reached(host: HostConfig) -> tuple[object, ...]:
    return (host.data_root, host.python)
