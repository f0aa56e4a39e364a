"""Reading an agent's stdout: one JSON object a line, and nothing in it is trusted.

No function here raises for any input, and each takes time in proportion to its input. A value of another type than
asked for counts as absent: the string "false" is neither true nor false (agents have printed both).
"""

from __future__ import annotations

import json
import re
from typing import Any, Dict, List, Optional, Union

from .contract import Event

# No event that we read is near this; longer lines are tool output (an image, say) and are not parsed.
LINE_LIMIT_BYTES = 4 * 1024 * 1024
EVENT_TEXT_BYTES = 4 * 1024
EVENTS_PER_LINE = 64
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")


def parse_object(line: Union[bytes, str], limit_bytes: int = LINE_LIMIT_BYTES) -> Optional[Dict[str, Any]]:
    """The JSON object that the line is, or None: a banner, half a line, another JSON value, too long, too deep."""
    if len(line) > limit_bytes:
        return None
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    if not text.lstrip().startswith("{"):
        return None
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _no_number(_constant: str) -> None:
    """NaN and Infinity are absent, so one bad figure does not cost the whole event."""


def _short_int(digits: str) -> Optional[int]:
    # int() of a very long string is quadratic before Python 3.11.
    return int(digits) if len(digits) <= 18 else None


_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_int=_short_int)  # loads() would make one for each line


def bounded(text: str, limit_bytes: int = EVENT_TEXT_BYTES) -> str:
    """The text cut to so many bytes of UTF-8, with an ellipsis when it was cut; lone surrogates become `?`."""
    raw = text[: limit_bytes + 1].encode("utf-8", "replace")
    if len(raw) <= limit_bytes and len(text) <= limit_bytes:
        return raw.decode("utf-8")
    return raw[: limit_bytes - 3].decode("utf-8", "ignore") + "…"


def one_line(text: str, limit_bytes: int) -> str:
    return bounded(" ".join(text[: 2 * limit_bytes].split()), limit_bytes)


def without_colours(text: str) -> str:
    return _COLOUR.sub("", text)


def telling_line(output: bytes) -> str:
    """The last line that is not blank, as text without colours.

    Where that only tells how to get help, the one that says what is wrong with the options.
    """
    text = without_colours(output[-4096:].decode("utf-8", "replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    wrong = [line for line in lines if "error:" in line.lower()] if "--help" in lines[-1] else []
    return wrong[-1] if wrong else lines[-1]


def notice_of(line: bytes) -> List[Event]:
    """A line that is no event of the agent's, as what it is."""
    text = bounded(line[: 64 * 1024].decode("utf-8", "replace").strip())
    return [Event("notice", text)] if text else []


class Words:
    """An agent's message that arrives in pieces; the last one is kept whole, to the end that holds the result."""

    def __init__(self) -> None:
        self._parts: List[str] = []
        self._of = ""
        self._over = False

    def say(self, text: str, *, of: str = "") -> None:
        """A piece; `of` names its message where the agent tells it, and another name begins another message."""
        if self._over or of != self._of:
            self._parts = []
        self._over, self._of = False, of
        self._parts.append(text)

    def stop(self) -> None:
        """Something else happened, so the next piece begins a message."""
        self._over = True

    def lose(self) -> None:
        """Some pieces are not known, so none of those before is of the last message."""
        self._parts, self._over = [], True

    def last(self) -> str:
        return "".join(self._parts)


def value_at(record: Any, *path: str) -> Any:
    for key in path:
        record = record.get(key) if isinstance(record, dict) else None
    return record


def text_at(record: Any, *path: str) -> str:
    value = value_at(record, *path)
    return value if isinstance(value, str) else ""


def flag_at(record: Any, *path: str) -> Optional[bool]:
    value = value_at(record, *path)
    return value if isinstance(value, bool) else None


def count_at(record: Any, *path: str) -> Optional[int]:
    value = value_at(record, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def amount_at(record: Any, *path: str) -> Optional[float]:
    """A figure from 0 up, such as a cost; infinity (JSON text `1e999`) is absent."""
    value = value_at(record, *path)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        return None
    return float(value)


def list_at(record: Any, *path: str) -> List[Any]:
    value = value_at(record, *path)
    return value if isinstance(value, list) else []
