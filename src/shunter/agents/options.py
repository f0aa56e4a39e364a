"""Checks on what a turn asks for, before it becomes a word of an argument vector."""

from __future__ import annotations

import re
from typing import Dict, Iterable, Optional, Tuple

from ..wire.errors import ShunterError
from .contract import Turn

PERMISSIONS = ("workspace", "unattended")
# A session id came from an agent's output, so it must not be able to pose as an option.
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@\[\]+-]{0,199}\Z")
_EFFORT = re.compile(r"[a-z]{1,20}\Z")


def check_options(agent: str, turn: Turn, *, unknown: Iterable[str] = ()) -> None:
    """Raises AGENT_OPTION for an option that the agent does not know and for a value that is none."""
    for name in unknown:
        if getattr(turn, name) is not None:
            raise ShunterError("AGENT_OPTION", f"{agent} has no option {name}", hint=f"leave {name} out for {agent}")
    _check(agent, "model", turn.model, _MODEL)
    _check(agent, "effort", turn.effort, _EFFORT)
    _check(agent, "session_id", turn.session_id, _SESSION_ID)
    _check(agent, "new_session_id", turn.new_session_id or None, _SESSION_ID)
    if turn.permission not in PERMISSIONS:
        raise ShunterError("AGENT_OPTION", f"permission {turn.permission!r} is none of {', '.join(PERMISSIONS)}")
    if turn.max_turns is not None and turn.max_turns < 1:
        raise ShunterError("AGENT_OPTION", f"max_turns is {turn.max_turns}, but at least 1 is needed")
    if turn.max_budget_usd is not None and not 0 < turn.max_budget_usd < float("inf"):
        raise ShunterError("AGENT_OPTION", f"max_budget_usd is {turn.max_budget_usd}, but a sum above 0 is needed")


def is_session_id(text: object) -> bool:
    return isinstance(text, str) and bool(_SESSION_ID.match(text))


def _check(agent: str, name: str, value: object, form: re.Pattern[str]) -> None:
    if value is not None and not (isinstance(value, str) and form.match(value)):
        raise ShunterError("AGENT_OPTION", f"{value!r} cannot be the {name} of {agent}")


def fill_command(agent: str, turn: Turn, words: Iterable[str], *, session_id: Optional[str] = None) -> Tuple[str, ...]:
    """A configured command line with the turn's {model} and {effort}; what `turn.command` does not name is no option.

    With `session_id` that may be named, too. Raises AGENT_OPTION also for a place without a value.
    """
    given = tuple(words)
    filled: Dict[str, Optional[str]] = {"{model}": turn.model, "{effort}": turn.effort}
    unknown = [place[1:-1] for place in filled if not any(place in word for word in turn.command)]
    check_options(agent, turn, unknown=[*unknown, "max_turns", "max_budget_usd"])
    for place, value in filled.items():
        if value is None and any(place in word for word in given):
            raise ShunterError("AGENT_OPTION", f"the agent's command line needs a value for {place}")
    if session_id is not None:
        filled["{session_id}"] = session_id
    return tuple(_filled(word, filled) for word in given)


def _filled(word: str, values: Dict[str, Optional[str]]) -> str:
    for place, value in values.items():
        word = word.replace(place, value or "")
    return word


def find_program_argv(command: Tuple[str, ...]) -> Tuple[str, ...]:
    """Looks for the program of a configured command instead of running it: what it would do is not known."""
    return ("sh", "-c", 'command -v -- "$0"', command[0] if command else "sh")
