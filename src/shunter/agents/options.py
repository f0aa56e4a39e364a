"""Checks on what a turn asks for, before it becomes a word of an argument vector."""

from __future__ import annotations

import re
from typing import Iterable

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


def _check(agent: str, name: str, value: object, form: re.Pattern[str]) -> None:
    if value is not None and not (isinstance(value, str) and form.match(value)):
        raise ShunterError("AGENT_OPTION", f"{value!r} cannot be the {name} of {agent}")
