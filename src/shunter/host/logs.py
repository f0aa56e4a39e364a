"""Reading an attempt's output by byte offset: the head, then the pieces that `output.Log` kept, with the gaps (T16).

Offsets count what the agent wrote, not what was kept. While the agent runs, a piece may go while it is read; what is
then read is the next one, behind a gap.
"""

from __future__ import annotations

import os
import stat
from binascii import b2a_base64
from typing import Iterator, List, NamedTuple, Optional, Tuple

from ..agents.contract import Gap
from ..wire.messages import LogChunk
from .durable import is_unusable, open_regular
from .output import TIMES, spacing_s

READ_BYTES = 1 << 20
LINE_LIMIT = 4 << 20  # a longer line is cut to one byte more, which no adapter parses


class Piece(NamedTuple):
    offset: int
    size: int
    path: str


def find_pieces(path: str) -> List[Piece]:
    """What there is of the stream whose head stands at `path`, in order."""
    directory, name = os.path.split(path)
    found = []
    for entry in os.listdir(directory) if os.path.isdir(directory) else ():
        head, at, offset = entry.partition("@")
        if head == name and (offset.isdecimal() or not at):
            full = os.path.join(directory, entry)
            try:
                about = os.lstat(full)
            except FileNotFoundError:
                continue  # an old piece that went just now
            if stat.S_ISREG(about.st_mode):  # an agent may put anything here
                found.append(Piece(int(offset or 0), about.st_size, full))
    return sorted(found)


def log_end(path: str) -> int:
    """The offset behind the last byte that is kept."""
    return max((piece.offset + piece.size for piece in find_pieces(path)), default=0)


def offset_since(path: str, since: float) -> int:
    """Where the first line begins of which a byte came at that time or later; 0 where no times were noted.

    Up to a second earlier (or a thousandth of the stream's age), as finely as times are noted.
    """
    end = log_end(path)  # first: what is written after this has its row by now or needs none
    rows = _read_times(path)
    for (offset, at), after in zip(rows, [*rows[1:], None]):
        if after is not None and after[1] <= since:
            continue
        if since < at + spacing_s(at - rows[0][1]):
            return offset
        return after[0] if after is not None else end
    return 0


def _read_times(path: str) -> List[Tuple[int, float]]:
    directory, name = os.path.split(path)
    rows = []
    for data in _blocks(os.path.join(directory, TIMES + name)):
        for row in data.splitlines():
            offset, _, at = row.partition(b" ")
            try:
                rows.append((int(offset), float(at)))
            except ValueError:
                pass  # torn by a full disk
    return rows


def read_chunk(path: str, offset: int, limit: int, *, total: Optional[int]) -> LogChunk:
    """`total`: how much the agent wrote, once it has ended. A gap up to there is told as one."""
    for piece in find_pieces(path):
        if offset < piece.offset + piece.size:
            at = max(offset, piece.offset)
            data = _read_at(piece.path, at - piece.offset, min(limit, piece.offset + piece.size - at))
            if data:
                after = at + len(data)
                text = b2a_base64(data, newline=False).decode()
                return LogChunk(at, text, at - offset, after, total is not None and after >= total)
    end = offset if total is None else max(total, offset)
    return LogChunk(end, "", end - offset, end, total is not None)


def _read_at(path: str, offset: int, limit: int) -> bytes:
    try:
        fd = open_regular(path)
    except OSError as exc:
        if not is_unusable(exc):
            raise
        return b""
    try:
        return os.pread(fd, limit, offset)
    finally:
        os.close(fd)


def lost_bytes(path: str, total: int) -> int:
    """How many of the bytes that the agent wrote are not kept."""
    return max(0, total - sum(piece.size for piece in find_pieces(path)))


def read_lines(path: str, *, total: int) -> Iterator[bytes]:
    """Every kept line without its newline, in bounded memory, with a `Gap` where bytes of the `total` are not kept.

    What is left of a line behind the gap that cut it is left out.
    """
    pending, skipping, at = b"", False, 0
    for piece in find_pieces(path):
        if piece.offset != at:
            if pending:
                yield pending
            yield Gap()
            pending, skipping = b"", True
        at = piece.offset + piece.size
        for data in _blocks(piece.path):
            lines = data.split(b"\n")
            if skipping and len(lines) == 1:
                continue
            if skipping:
                lines.pop(0)
                skipping = False
            else:
                lines[0] = pending + lines[0]
            pending = lines.pop()
            for line in lines:
                yield line.rstrip(b"\r")
            if len(pending) > LINE_LIMIT:
                yield pending[: LINE_LIMIT + 1]
                pending, skipping = b"", True
    if pending:
        yield pending
    if at < total:
        yield Gap()


def _blocks(path: str) -> Iterator[bytes]:
    try:
        fd = open_regular(path)
    except OSError as exc:
        if not is_unusable(exc):
            raise
        return
    with open(fd, "rb", 0) as file:
        while True:
            data = file.read(READ_BYTES)
            if not data:
                return
            yield data


def read_tail(path: str, limit: int) -> bytes:
    """The last bytes of a stream, at most `limit`, without a gap between them."""
    found, begin = b"", None
    for piece in reversed(find_pieces(path)):
        missing = limit - len(found)
        if missing <= 0 or (begin is not None and piece.offset + piece.size != begin):
            break
        found = _read_at(piece.path, max(0, piece.size - missing), missing) + found
        begin = piece.offset
    return found
