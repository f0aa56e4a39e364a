"""Lines of an agent that speaks the Agent Client Protocol: of bounded length, and messages in fewer pieces."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, Optional

from ..agents.stream import text_at, value_at

LINE_LIMIT_BYTES = 8 << 20
PIECE_CHARACTERS = 1024  # of a message's text in one line, so that a log shows it uncut
FRAME_LIMIT_BYTES = 4096  # of what stands around the text and is repeated with each piece
_JOINED = ("agent_message_chunk", "agent_thought_chunk")


class LineTooLongError(Exception):
    """A line is over the limit, so what it belongs to cannot be known."""


class Lines:
    """Bytes in, whole lines out, each without its newline."""

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Raises LineTooLongError once the lines before the long one are out."""
        first, *others = data.split(b"\n")
        self._pending += first
        for part in others:
            self._check()
            line, self._pending = bytes(self._pending), bytearray(part)
            yield line
        self._check()

    def _check(self) -> None:
        if len(self._pending) > self._limit_bytes:
            self._pending = bytearray()
            raise LineTooLongError

    def rest(self) -> bytes:
        """What stands behind the last newline."""
        return bytes(self._pending)


class Pieces:
    """Joins the pieces of a message (often one word each), and cuts at the end of a line where there is one.

    A piece is joined only to one that differs in nothing but its text, so nothing that a message carries is lost.
    """

    def __init__(self) -> None:
        self._frame: Dict[str, Any] = {}
        self._text = ""

    def take(self, message: Dict[str, Any], frame: Dict[str, Any]) -> Iterator[bytes]:
        """A message that `frame_of` gave a frame for; back come the lines that are to be told now."""
        if frame != self._frame:
            yield from self.end()
            self._frame = frame
        text, at = self._text + text_at(message, "params", "update", "content", "text"), 0
        while len(text) - at >= PIECE_CHARACTERS:
            end = text.rfind("\n", at, at + PIECE_CHARACTERS) + 1 or at + PIECE_CHARACTERS
            yield self._told(text[at:end])
            at = end
        self._text = text[at:]

    @property
    def has_lines(self) -> bool:
        return "\n" in self._text

    def pause(self) -> Iterator[bytes]:
        """The whole lines, when nothing has come for a while."""
        at = self._text.rfind("\n") + 1
        if at:
            yield self._told(self._text[:at])
            self._text = self._text[at:]

    def end(self) -> Iterator[bytes]:
        """All that is left, before something else is told; an empty text, too, where it carries something."""
        if self._text or "_meta" in (value_at(self._frame, "params", "update") or ()):
            yield self._told(self._text)
        self._frame, self._text = {}, ""

    def _told(self, text: str) -> bytes:
        return to_line(_with_text(self._frame, text))


def frame_of(message: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """What stands around a piece of text of a message; None for anything else, and where it is long."""
    update = value_at(message, "params", "update")
    content = value_at(update, "content")
    if text_at(message, "method") != "session/update" or text_at(update, "sessionUpdate") not in _JOINED:
        return None
    if text_at(content, "type") != "text" or not isinstance(value_at(content, "text"), str):
        return None
    frame = _with_text(message, "")
    return frame if len(to_line(frame)) <= FRAME_LIMIT_BYTES else None


def _with_text(message: Dict[str, Any], text: str) -> Dict[str, Any]:
    params = message["params"]
    update = params["update"]
    content = {**update["content"], "text": text}
    return {**message, "params": {**params, "update": {**update, "content": content}}}


def to_line(value: Dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
