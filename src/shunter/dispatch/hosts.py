"""The hosts of the configuration, each with a client; nothing is contacted until it is asked something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..fleet.client import HostClient
from ..fleet.config import Config
from ..fleet.places import Places
from ..fleet.transport import LocalTransport

HostListener = Callable[[str, str | None, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class HostEntry:
    """A host of the pool: its client, and the capacity that the configuration gives it."""

    name: str
    client: HostClient
    slots: int
    memory_mb: int | None


def open_hosts(config: Config, places: Places, listener: HostListener | None = None) -> dict[str, HostEntry]:
    """Clients of the enabled hosts; nothing is contacted yet."""
    entries = {}
    for host in config.hosts:
        if not host.enabled:
            continue
        transport = LocalTransport(host.name, host.data_root or places.host_data_root, host.python)
        client = HostClient(transport)
        if listener is not None:
            client.listener = partial(listener, host.name)
        entries[host.name] = HostEntry(host.name, client, host.slots, host.memory_mb)
    return entries
