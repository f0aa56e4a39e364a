"""How a request for permission (of the Agent Client Protocol) is answered when nobody is there to ask.

`unattended` says yes to everything. `workspace` says yes to what, by the request's own words, stays in the workspace;
an agent that says something else than it does is not held back, so this is no sandbox.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple
from urllib.parse import unquote

from ..wire.record import dataclass
from .stream import list_at, text_at, value_at
from .tools import path_of

YES, NO = ("allow_once", "allow_always"), ("reject_once", "reject_always")
# Kinds of a tool call that change files, so that it must be known which; and those that leave the workspace by nature.
_CHANGES, _LEAVES = ("edit", "delete", "move"), ("fetch", "switch_mode")

_NAME_LIMIT, _PATH_LIMIT, _PATHS_LIMIT, _CALLS_LIMIT, _VALUES_LIMIT = 128, 4096, 256, 64, 10_000
# Names under which the input of a tool holds a path, without regard to case, `_` and `-`.
_PATH_NAMES = ("from", "to", "src", "dst", "dest", "destination", "root")
_PATH_ENDINGS = (
    *("path", "paths", "file", "files", "filename", "filenames", "dir", "dirs", "directory", "directories"),
    *("folder", "folders", "cwd", "uri", "uris", "url", "urls"),
)
_ELSEWHERE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]{0,30}://", re.I)  # no path, but the address of another place
_FILE_URL = re.compile(r"file:(?://([^/?#]*))?", re.I)
_HOMES = ("~", "$HOME", "${HOME}")


@dataclass(frozen=True)
class Answer:
    """`option_id` None: none of the options is usable, so the request is answered with `cancelled`."""

    option_id: Optional[str]
    option_kind: str  # the protocol's word; `cancelled` without an option
    reason: str


class _Call(NamedTuple):
    kind: str = ""
    paths: Tuple[str, ...] = ()
    is_whole: bool = True  # False: it names more than is looked at


class Calls:
    """What was told of the latest calls of tools. A request names its call and need not repeat it (Claude does not)."""

    def __init__(self) -> None:
        self._known: Dict[str, _Call] = {}

    def note(self, update: Any) -> None:
        """Of a call, or of more that became known of it."""
        name = text_at(update, "toolCallId")[:_NAME_LIMIT]
        known = self.of(update)
        self._known.pop(name, None)
        self._known[name] = known._replace(kind=known.kind[:_NAME_LIMIT])
        if len(self._known) > _CALLS_LIMIT:
            del self._known[next(iter(self._known))]

    def of(self, call: Any) -> _Call:
        """Its kind, and every path that it named."""
        known = self._known.get(text_at(call, "toolCallId")[:_NAME_LIMIT], _Call())
        found, is_whole = _all_paths(call)
        paths = tuple(dict.fromkeys((*known.paths, *found)))
        return _Call(
            text_at(call, "kind") or known.kind,
            paths[:_PATHS_LIMIT],
            known.is_whole and is_whole and len(paths) <= _PATHS_LIMIT,
        )


def answer_request(params: Any, calls: Calls, *, permission: str, is_inside: Callable[[str], bool]) -> Answer:
    """`params` is the request's, and nothing in it is trusted."""
    call = calls.of(value_at(params, "toolCall"))
    objection = None if permission == "unattended" else _objection(call, is_inside)
    reason = objection or ("everything is allowed" if permission == "unattended" else _why_not_refused(call))
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


def _objection(call: _Call, is_inside: Callable[[str], bool]) -> Optional[str]:
    """Why it does not stay in the workspace, by its own words; None when nothing says so."""
    if call.kind in _LEAVES:
        return f"{call.kind} does not stay in the workspace"
    for path in call.paths:
        if not all(place is not None and is_inside(place) for place in _places_of(path)):
            return f"{path[:200]} is outside of the workspace"
    if not call.is_whole:
        return "it names more than can be judged"
    if call.kind in _CHANGES and not call.paths:
        return f"{call.kind} of a file that is not named"
    return None


def _why_not_refused(call: _Call) -> str:
    """No more than is known: a command, or a call without a path, may do anything."""
    if call.kind == "execute":
        return "a command runs with the account's rights"
    if call.paths:
        return "every path that it names is in the workspace or in TMPDIR"
    return "it names no path, so nothing speaks against it"


def _places_of(path: str) -> Tuple[Optional[str], ...]:
    """Where a tool may look for it; None is a place outside, whatever the workspace."""
    text = path.strip()
    if text.startswith(_HOMES):
        return (None,)
    url = _FILE_URL.match(text)
    if url is None:
        return (text,)
    if url[1] and url[1].lower() != "localhost":
        return (None,)
    rest = text[url.end() :]
    ends = (rest, re.split(r"[?#]", rest, maxsplit=1)[0])  # some take `#L10` for a part of the name
    return tuple(
        None if end.startswith(_HOMES) else end for end in (unquote(each, errors="surrogateescape") for each in ends)
    )


def named_paths(call: Any) -> Tuple[str, ...]:
    """Of a tool call: its locations, the files of its diffs, and the path that the tool was called with."""
    found: List[str] = [text_at(each, "path") for each in list_at(call, "locations")]
    found += [text_at(each, "path") for each in list_at(call, "content") if text_at(each, "type") == "diff"]
    found.append(path_of(value_at(call, "rawInput")))
    return tuple(dict.fromkeys(path for path in found if path))


def _all_paths(call: Any) -> Tuple[List[str], bool]:
    """Those above, and what the tool's input holds under the name of a path, however deep; and whether this is all."""
    found, left, count = list(named_paths(call)), [(value_at(call, "rawInput"), False)], 0
    while left:
        value, is_path = left.pop()
        count += 1
        if count > _VALUES_LIMIT:
            return found, False
        if isinstance(value, dict):
            # Codex: {"changes": {"/etc/x": …}}
            found += [name for name in value if "/" in name or name.startswith(_HOMES)]
            left += [(each, _is_path_name(name)) for name, each in value.items()]
        elif isinstance(value, list):
            left += [(each, is_path) for each in value]
        elif isinstance(value, str) and is_path and value:
            found.append(value)
    paths = [path for path in found if not _ELSEWHERE.match(path.strip())]
    kept = [path for path in paths if len(path) <= _PATH_LIMIT]
    return kept, len(kept) == len(paths)


def _is_path_name(name: str) -> bool:
    word = name[:_NAME_LIMIT].lower().replace("_", "").replace("-", "")
    return word in _PATH_NAMES or word.endswith(_PATH_ENDINGS)
