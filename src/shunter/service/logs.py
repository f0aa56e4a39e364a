"""Reading a turn's output from its host, by offset, and following it live."""

from __future__ import annotations

import base64
import codecs
import queue
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..fleet.client import HostClient
from ..model.records import Turn
from ..model.states import Step, TaskState
from ..wire.errors import ShunterError
from ..wire.messages import FollowAsk, LogAsk, LogChunk
from .home import Home
from .leading import unled

RECONNECT_PAUSE_S = 0.5
SETTLE_LIMIT_S = 30.0
UNLED_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the stream from `offset` on; `gap_bytes` before them were over the cap and are not kept.

    Neither bytes nor a gap: nothing has come for a second.
    """

    offset: int
    data: bytes
    gap_bytes: int


class Begun(bytes):
    """The beginning of a line, or more of it, that is not over."""


def choose_turn(home: Home, prefix: str, number: int | None, *, follow: bool) -> Turn:
    """The task's last turn, or the one with that number. Before a repeat begins, what it repeats is the last."""
    task = home.reading.find_task(prefix)
    turns = home.reading.load_turns(task.id)
    for turn in turns:
        if turn.number == number:
            return turn
    if number is not None:
        raise ShunterError("USAGE", f"task {task.id} has turns 1 to {len(turns)}, not {number}")
    last = turns[-1]
    return turns[-2] if last.repeat_number and last.attempt_number == 0 and not follow else last


def read_log(home: Home, turn: Turn, *, stream: str, follow: bool, ago_s: float | None = None) -> Iterator[Piece]:
    """Every byte once, in order, or those of the last `ago_s` seconds.

    Following goes on across a lost session and ends with the turn.
    """
    turn = wait_accepted(home, turn, follow=follow)
    if home.reading.load_task(turn.task_id).state == TaskState.CLOSED:
        raise ShunterError("TASK_CLOSED", f"task {turn.task_id} is closed, its logs went with the workspace")
    if turn.attempt_id is None or turn.accepted_at is None:
        return
    changes: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    entry = home.host(turn.host or "")
    client = HostClient(entry.client.transport, lambda method, params: _note(changes, method, params))
    try:
        offset, subscribed = 0, False
        while True:
            try:
                if follow and not subscribed:
                    client.call("log.follow", FollowAsk(turn.attempt_id, stream))
                    subscribed = True
                chunk: LogChunk = client.call("log.read", LogAsk(turn.attempt_id, stream, offset, ago_s=ago_s))
            except ShunterError as exc:
                if not follow or exc.code not in ("HOST_UNREACHABLE", "DEADLINE"):
                    raise
                subscribed = False
                time.sleep(RECONNECT_PAUSE_S)
                continue
            ago_s = None  # from here on the offset tells
            data = base64.b64decode(chunk.data)
            if data or chunk.gap_bytes:
                yield Piece(chunk.offset, data, chunk.gap_bytes)
            offset = chunk.next_offset
            if chunk.ended or (not data and not follow):
                return
            if not data and not _wait_change(changes):
                yield Piece(offset, b"", 0)
    finally:
        client.close()


def find_repeat(home: Home, turn: Turn) -> tuple[Turn, float] | None:
    """What repeats a turn whose log has ended, once that is decided, and when it is due (Unix seconds).

    None also where nobody is at work to settle the turn, or when that takes longer than SETTLE_LIMIT_S.
    """
    give_up = time.monotonic() + SETTLE_LIMIT_S
    while (turn := home.reading.load_turn(turn.id)).step != Step.SETTLED:
        if time.monotonic() > give_up or unled(home) is not None:
            return None
        time.sleep(0.1)
    for later in home.reading.load_turns(turn.task_id):
        if later.number == turn.number + 1 and later.repeat_number:
            row = home.reading.load_row(later.id)
            return later, (row.not_before if row else None) or 0.0
    return None


def _note(changes: queue.SimpleQueue[str | None], method: str | None, params: dict[str, Any]) -> None:
    changes.put(method)


def _wait_change(changes: queue.SimpleQueue[str | None]) -> bool:
    """Until the host says that something grew or ended; False after a second, in case a word was lost."""
    try:
        changes.get(timeout=1.0)
    except queue.Empty:
        return False
    return True


def wait_accepted(home: Home, turn: Turn, *, follow: bool) -> Turn:
    """Raises NO_DISPATCHER when nobody is at work for UNLED_LIMIT_S: nobody would ever end the waiting."""
    led_at = time.monotonic()
    while follow and turn.accepted_at is None and turn.step != Step.SETTLED:
        time.sleep(0.1)
        turn = home.reading.load_turn(turn.id)
        stale = unled(home)
        if stale is None:
            led_at = time.monotonic()
        elif time.monotonic() - led_at > UNLED_LIMIT_S:
            raise ShunterError("NO_DISPATCHER", stale, hint="shunter reconcile")
    return turn


def lines_of(pieces: Iterator[Piece], *, begun: bool = False) -> Iterator[bytes | Piece]:
    """Whole lines without their newline; a piece with a gap is handed on as it is, before the lines after it.

    With `begun`, what there is of a line after a second without more comes as `Begun`, and then only its rest.
    """
    pending, is_begun = b"", False
    for piece in pieces:
        if piece.gap_bytes:
            if pending or is_begun:
                yield pending
            yield Piece(piece.offset, b"", piece.gap_bytes)
            pending, is_begun = b"", False
        elif begun and not piece.data:
            told = _whole_characters(pending)
            if told:
                yield Begun(told)
                pending, is_begun = pending[len(told) :], True
        *whole, pending = (pending + piece.data).split(b"\n")
        is_begun = is_begun and not whole
        yield from whole
    if pending or is_begun:
        yield pending


def _whole_characters(text: bytes) -> bytes:
    """Without the first bytes of a character, in UTF-8, whose others are still to come."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(text)
    return text[: len(text) - len(decoder.getstate()[0])]
