"""Taking a host out of the pool, and with `--purge` what shunter has there."""

from __future__ import annotations

import time

from ..dispatch.hosts import HostEntry, make_transport
from ..fleet.inventory import remove_host_entry
from ..fleet.observations import forget_observation
from ..fleet.ssh import SshTransport
from ..wire.errors import ShunterError
from ..wire.messages import Contents, Nothing
from .home import Home

ALL = 100_000


def refuse_removal(home: Home, name: str) -> HostEntry:
    """The entry, unless turns run there or wait for it alone. Raises TASK_BUSY with their tasks."""
    entry = home.host(name)
    if not home.was_used:
        return entry
    turns = [turn for turn in home.store.open_turns(waiting=False) if turn.host == name]
    running = sorted({turn.task_id for turn in turns})
    if running:
        hint = f"shunter host drain {name}, then wait: shunter wait {' '.join(running)}"
        unheard = sorted({turn.task_id for turn in turns if turn.uncertain})
        if unheard:
            hint += f"; if it never answers again: shunter cancel {' '.join(unheard)} --force {name}"
        raise ShunterError("TASK_BUSY", f"turns run on {name}: {', '.join(running)}", hint=hint)
    rows = home.store.list_rows(limit=ALL)
    waiting = sorted({row.task_id for row in rows if row.pinned_host == name and row.owner is None})
    if waiting:
        hint = f"shunter cancel {' '.join(waiting)}"
        raise ShunterError("TASK_BUSY", f"turns wait for {name} alone: {', '.join(waiting)}", hint=hint)
    return entry


def look_at_contents(home: Home, entry: HostEntry) -> Contents:
    """What `remove --purge` would remove. Raises TASK_BUSY when something runs there, for whichever home."""
    del home
    try:
        found: Contents = entry.client.call("host.contents", Nothing())
    finally:
        entry.client.close()
    if found.running:
        text = f"attempts run on {entry.name}: {', '.join(found.running)}"
        raise ShunterError("TASK_BUSY", text, hint="wait until they are over, or cancel their tasks")
    return found


def remove_host(home: Home, name: str) -> bool:
    """Take the entry out of the configuration. False when only the built-in `local` had that name."""
    removed = remove_host_entry(home.places, name)
    forget_observation(home.places, name)
    if home.was_used:
        home.store.enable_host(name, actor="removal", now=time.time())
    return removed


def purge_host(home: Home, entry: HostEntry) -> str:
    """Remove the data root as a whole; what was done, in words. Only for hosts reached by ssh."""
    transport = make_transport(entry.config, home.places)
    if not isinstance(transport, SshTransport):
        raise ShunterError("USAGE", "--purge is for hosts reached by ssh", hint=f"rm -rf {home.places.host_data_root}")
    return transport.purge()
