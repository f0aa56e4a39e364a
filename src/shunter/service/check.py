"""Proving a host without changing anything there: reached, versions, git, room, agents (the local part of X16)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..agents.table import MODULES, load
from ..wire.errors import ShunterError
from ..wire.messages import Facts, FactsAsk, Hello
from .home import Home

OLDEST_PYTHON = (3, 9)
OLDEST_GIT = (2, 30)
LEAST_DISK_MB = 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `ok` None: a note, neither good nor bad. `remedy` is one line."""

    what: str
    ok: bool | None
    found: str
    remedy: str | None = None


def check_host(home: Home, name: str) -> list[Finding]:
    entry = home.host(name)
    try:
        hello = entry.client.session().hello
        programs = sorted(program_names())
        facts: Facts = entry.client.call("host.facts", FactsAsk(tuple(programs)))
    except ShunterError as exc:
        return [Finding("reached", False, f"{exc.code}: {exc.text}", exc.hint)]
    finally:
        entry.client.close()
    return [
        Finding("reached", True, f"helper {hello.version} ({hello.digest}), data root {hello.data_root}"),
        *_versions(hello),
        Finding("slots", True, f"{facts.slots_used} of {entry.config.slots} in use"),
        _disk(facts),
        Finding("memory", None, "not measured" if facts.memory_available_mb is None else _memory(facts)),
        *_agents(facts),
    ]


def program_names() -> set[str]:
    """The programs of the built-in agents and of their sandboxes."""
    names = set()
    for adapter in MODULES:
        if adapter == "exec":
            continue
        names.add(load(adapter).version_argv()[0])
        names.update(load(adapter).sandbox_programs())
    return names


def _versions(hello: Hello) -> list[Finding]:
    python, git = numbers(hello.python), numbers(hello.git)
    return [
        Finding("python", python >= OLDEST_PYTHON, hello.python, "install Python 3.9 or newer"),
        Finding("git", git >= OLDEST_GIT, hello.git or "not found", "install git 2.30 or newer"),
        Finding("system", hello.os.startswith("linux"), hello.os, "turns run on Linux only in this version"),
    ]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _disk(facts: Facts) -> Finding:
    free = facts.disk_free_mb
    if free is None:
        return Finding("disk", None, "not measured")
    return Finding("disk", free >= LEAST_DISK_MB, f"{free} MB free", f"free at least {LEAST_DISK_MB} MB")


def _memory(facts: Facts) -> str:
    return f"{facts.memory_available_mb} MB available, {facts.memory_reserved_mb} MB reserved"


def _agents(facts: Facts) -> list[Finding]:
    return [Finding(f"program {name}", None, path or "not found") for name, path in sorted(facts.programs.items())]
