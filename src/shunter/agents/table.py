"""Which module describes an agent. A module is loaded only when its agent is asked for.

A name is a key of the table, or `exec:` or `acp:` and a command line, which is split as a shell would but run without
one.
"""

from __future__ import annotations

import importlib
import shlex
from functools import partial
from typing import Callable, List, Mapping, NamedTuple, Optional, Protocol, Tuple, cast

from ..wire.errors import ShunterError
from .contract import AuthCheck, Ended, Event, Launch, Outcome, Turn

MODULES = {
    "acp": "shunter.agents.acp",
    "claude": "shunter.agents.claude",
    "codex": "shunter.agents.codex",
    "copilot": "shunter.agents.copilot",
    "cursor": "shunter.agents.cursor",
    "exec": "shunter.agents.exec",
    "gemini": "shunter.agents.gemini",
    "opencode": "shunter.agents.opencode",
    "qwen": "shunter.agents.qwen",
}
# No program of their own: what runs is a command line that the user gives, such as this one.
COMMANDS = {"acp": ("gemini", "--acp"), "exec": ("make", "fix")}


class Adapter(Protocol):
    """The functions of an adapter module; see `contract` for what each must do."""

    def launch(self, turn: Turn) -> Launch: ...
    def version_argv(self, command: Tuple[str, ...] = ()) -> Tuple[str, ...]: ...
    def auth_check(self) -> Optional[AuthCheck]: ...
    def sandbox_programs(self) -> Tuple[str, ...]: ...
    def prepare_prompt(self, text: str) -> str: ...
    def find_outcome(self, ended: Ended) -> Outcome: ...
    def read_event(self, line: bytes) -> List[Event]: ...


class AgentName(NamedTuple):
    """A name taken apart: the adapter's name, and the command that an `exec:` or `acp:` name brings along."""

    adapter: str
    command: Tuple[str, ...]


def is_command_line(name: str) -> bool:
    return name.partition(":")[0] in COMMANDS and ":" in name


def parse_name(name: str) -> AgentName:
    """Raises AGENT_UNKNOWN, or AGENT_OPTION for a command line that cannot be split or is empty."""
    adapter, colon, line = name.partition(":")
    if adapter not in MODULES or (colon and adapter not in COMMANDS):
        raise ShunterError(
            "AGENT_UNKNOWN", f"no agent is called {name!r}", hint=f"known are {', '.join(known_names())}"
        )
    if not colon:
        return AgentName(adapter, ())
    try:
        command = tuple(shlex.split(line))
    except ValueError as exc:
        raise ShunterError("AGENT_OPTION", f"the command line of {name!r} cannot be split: {exc}") from exc
    if not command:
        hint = f"write '{adapter}:{' '.join(COMMANDS[adapter])}', say"
        raise ShunterError("AGENT_OPTION", f"{name!r} has no command after the colon", hint=hint)
    return AgentName(adapter, command)


def known_names() -> Tuple[str, ...]:
    return tuple(f"{name}:<command line>" if name in COMMANDS else name for name in sorted(MODULES))


def event_reader(adapter: str, fields: Mapping[str, str]) -> Callable[[bytes], List[Event]]:
    """`read_event` of an agent; `fields` are those of a configured command, and empty for all others."""
    if not fields:
        return load(adapter).read_event
    from .exec import read_event

    return partial(read_event, fields=fields)


def load(name: str) -> Adapter:
    """The adapter for a name; raises AGENT_UNKNOWN with the known names."""
    return cast(Adapter, importlib.import_module(MODULES[parse_name(name).adapter]))
