"""What every use case stands on: places, configuration, the store, and clients of hosts; each opened when needed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..fleet.places import Places, find_places
from ..store.contract import Store
from ..store.file import is_used
from ..store.sqlite import open_store
from ..wire.errors import ShunterError

if TYPE_CHECKING:
    from ..dispatch.hosts import HostEntry
    from ..fleet.config import Config


class Home:
    """One command's view of home.

    Before `config` is used: `project_root` is where a project's own `shunter.toml` is looked for, `overrides` what the
    command line gave, by dotted keys.
    """

    def __init__(self, project_root: Path | None = None) -> None:
        self.project_root = project_root
        self.overrides: Mapping[str, Any] = {}

    @cached_property
    def places(self) -> Places:
        return find_places()

    @cached_property
    def config(self) -> Config:
        from ..fleet.config import load_config

        return load_config(self.places, self.project_root, self.overrides)

    @cached_property
    def store(self) -> Store:
        """For commands that change something; made when it is missing."""
        return open_store(str(self.places.store_file))

    @property
    def was_used(self) -> bool:
        """Whether anything was ever submitted, also when the store is damaged now."""
        return is_used(str(self.places.store_file))

    @cached_property
    def reading(self) -> Store:
        """For commands that only look (P17). Raises TASK_UNKNOWN when nothing was ever submitted."""
        if not self.was_used:
            raise ShunterError("TASK_UNKNOWN", "nothing was submitted yet", hint="shunter submit --help")
        return open_store(str(self.places.store_file), create=False, readonly=True)

    @cached_property
    def hosts(self) -> dict[str, HostEntry]:
        from ..dispatch.hosts import open_hosts

        return open_hosts(self.config, self.places, everything=True)

    def host(self, name: str) -> HostEntry:
        """Also one that takes no new turns. Raises HOST_UNKNOWN with the names that there are."""
        entry = self.hosts.get(name)
        if entry is None:
            hint = f"hosts: {', '.join(self.hosts)}"
            raise ShunterError("HOST_UNKNOWN", f"no host is called {name!r}", hint=hint)
        return entry

    def wake(self, *, ask_all: bool = False) -> None:
        """Make sure that a dispatcher looks at what was just stored.

        `ask_all`: it asks every host at once, also one that it leaves alone for a while because it did not answer.
        """
        from ..dispatch.wake import ASK_ALL, LOOK, ensure_dispatcher

        ensure_dispatcher(self.places, self.store, word=ASK_ALL if ask_all else LOOK)
