"""How a request for permission (of the Agent Client Protocol) is answered when nobody is there to ask.

`unattended` says yes to everything. `workspace` says yes to what, by the request's own words, stays in the workspace;
an agent that says something else than it does is not held back, so this is no sandbox.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from ..wire.record import dataclass
from .stream import list_at, text_at, value_at
from .tools import path_of

YES, NO = ("allow_once", "allow_always"), ("reject_once", "reject_always")
# Kinds of a tool call that change files, so that it must be known which; and those that leave the workspace by nature.
_CHANGES, _LEAVES = ("edit", "delete", "move"), ("fetch", "switch_mode")

_NAME_LIMIT, _PATH_LIMIT, _PATHS_LIMIT, _CALLS_LIMIT = 128, 4096, 64, 64


@dataclass(frozen=True)
class Answer:
    """`option_id` None: none of the options is usable, so the request is answered with `cancelled`."""

    option_id: Optional[str]
    option_kind: str  # the protocol's word; `cancelled` without an option
    reason: str


class Calls:
    """What was told of the latest calls of tools. A request names its call and need not repeat it (Claude does not)."""

    def __init__(self) -> None:
        self._known: Dict[str, Tuple[str, Tuple[str, ...]]] = {}

    def note(self, update: Any) -> None:
        """Of a call, or of more that became known of it."""
        name = text_at(update, "toolCallId")[:_NAME_LIMIT]
        kind, paths = self._known.pop(name, ("", ()))
        seen = tuple(dict.fromkeys((*paths, *named_paths(update))))[:_PATHS_LIMIT]
        self._known[name] = (text_at(update, "kind")[:_NAME_LIMIT] or kind, seen)
        if len(self._known) > _CALLS_LIMIT:
            del self._known[next(iter(self._known))]

    def of(self, call: Any) -> Tuple[str, Tuple[str, ...]]:
        """Its kind, and every path that it named."""
        kind, paths = self._known.get(text_at(call, "toolCallId")[:_NAME_LIMIT], ("", ()))
        return text_at(call, "kind") or kind, (*paths, *named_paths(call))


def answer_request(params: Any, calls: Calls, *, permission: str, is_inside: Callable[[str], bool]) -> Answer:
    """`params` is the request's, and nothing in it is trusted."""
    kind, paths = calls.of(value_at(params, "toolCall"))
    objection = None if permission == "unattended" else _objection(kind, paths, is_inside)
    reason = objection or ("everything is allowed" if permission == "unattended" else "it stays in the workspace")
    options = [
        (text_at(option, "kind"), text_at(option, "optionId"))
        for option in list_at(params, "options")
        if text_at(option, "optionId")
    ]
    for wanted in NO if objection else YES:
        for kind, option_id in options:
            if kind == wanted:
                return Answer(option_id, kind, reason)
    return Answer(None, "cancelled", f"{reason}, but no option says so")


def _objection(kind: str, paths: Tuple[str, ...], is_inside: Callable[[str], bool]) -> Optional[str]:
    """Why it does not stay in the workspace, by its own words; None when nothing says so."""
    if kind in _LEAVES:
        return f"{kind} does not stay in the workspace"
    outside = next((path for path in paths if not is_inside(path)), None)
    if outside is not None:
        return f"{outside[:200]} is outside of the workspace"
    if kind in _CHANGES and not paths:
        return f"{kind} of a file that is not named"
    return None


def named_paths(call: Any) -> Tuple[str, ...]:
    """Of a tool call: its locations, the files of its diffs, and the path that the tool was called with."""
    found: List[str] = [text_at(each, "path") for each in list_at(call, "locations")]
    found += [text_at(each, "path") for each in list_at(call, "content") if text_at(each, "type") == "diff"]
    found.append(path_of(value_at(call, "rawInput")))
    return tuple(dict.fromkeys(path[:_PATH_LIMIT] for path in found if path))
