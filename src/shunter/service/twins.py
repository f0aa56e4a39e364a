"""Two names of the pool for one machine and data root: one ledger, so only the first enabled one takes turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..policy.placement import HostView, find_twins
from ..wire.errors import ShunterError
from .home import Home

if TYPE_CHECKING:
    from ..fleet.observations import Observation
    from ..model.records import Task


def known_twins(home: Home) -> Mapping[str, str]:
    """Hosts that are another one's machine, with that one's name; from what was last seen, no host is asked."""
    if len(home.config.hosts) < 2:
        return {}
    from ..fleet.observations import load_observations

    return find_twins(_views(home, load_observations(home.places)))


def holders_of(home: Home, host_id: str, seen: Mapping[str, Observation]) -> list[str]:
    """Every enabled name of the pool for the data root of that id, in the configuration's order."""
    return [view.name for view in _views(home, seen) if view.host_id == host_id and view.enabled]


def _views(home: Home, seen: Mapping[str, Observation]) -> list[HostView]:
    from ..dispatch.hosts import view_host  # with all that reaches hosts, which a submit that only stores does without

    return [view_host(host, seen.get(host.name), None, {}, slots_used=0) for host in home.config.hosts]


def twin_remedy(name: str, first: str) -> str:
    return f"shunter host remove {name}; or give it a data_root of its own, or put its entry before that of {first}"


def refuse_twin(home: Home, name: str) -> None:
    """HOST_DUPLICATE for a host that takes no turns because another name has its machine."""
    first = known_twins(home).get(name)
    if first is not None:
        text = f"host {name} is the same machine and data root as {first}, which stands first in the configuration"
        hint = f"--host {first}; for a task that lives there already, put the entry of {name} before it"
        raise ShunterError("HOST_DUPLICATE", text, hint=hint)


def warn_pinned(home: Home, task: Task) -> tuple[str, ...]:
    """Why the task waits for ever when the only host that may have it takes no turns."""
    pin = task.host or task.pinned_host
    if pin is None:
        return ()
    again = f"task {task.id} waits for host {pin} alone"
    host = next((host for host in home.config.hosts if host.name == pin), None)
    if host is None:
        return (f"{again}, which is not in the pool: shunter cancel {task.id}",)
    if not host.enabled:
        return (f"{again}, which is switched off in the configuration",)
    first = known_twins(home).get(pin)
    return () if first is None else (f"{again}, which is the same machine as {first}: shunter cancel {task.id}",)
