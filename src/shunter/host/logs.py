"""Reading an attempt's output by byte offset: the head, a marked gap, the tail (T16).

Offsets count what the agent wrote, not what was kept: after the cap, `<stream>.a` and `<stream>.b` hold the last
bytes in turns (see supervisor.Log), and the reader of an ended attempt jumps over the gap.
"""

from __future__ import annotations

import base64
import os
from typing import Iterator, NamedTuple

from ..wire.messages import LogChunk

LINE_LIMIT = 16 << 20  # a longer line is cut when lines are read


class Extent(NamedTuple):
    """What there is of a stream: `kept` head bytes; once ended, `total` and the tail that starts at `tail_at`."""

    kept: int
    total: int
    tail_at: int
    tail: bytes


def read_extent(path: str, *, total: int, kept: int) -> Extent:
    """Of an ended stream, by the figures that its supervisor signed."""
    tail = b""
    if total > kept:
        halves = [_read(path + suffix) for suffix in (".a", ".b")]
        size = max(len(half) for half in halves)
        turns = -(-(total - kept) // size) if size else 0
        newest = (turns - 1) % 2
        tail = halves[1 - newest] + halves[newest] if turns > 1 else halves[newest]
    return Extent(kept, total, total - len(tail), tail)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def read_running(path: str, offset: int, limit: int) -> LogChunk:
    """While the agent runs: the head only; at the cap there is nothing more until the end."""
    data = _read_at(path, offset, limit)
    return LogChunk(offset, base64.b64encode(data).decode(), 0, offset + len(data), False)


def read_ended(path: str, extent: Extent, offset: int, limit: int) -> LogChunk:
    if offset < extent.kept:
        data = _read_at(path, offset, min(limit, extent.kept - offset))
        at, gap = offset, 0
        if not data:  # the file is shorter than was signed: somebody removed it
            return LogChunk(offset, "", extent.total - offset, extent.total, True)
    else:
        at = max(offset, extent.tail_at)
        gap = at - offset
        begin = at - extent.tail_at
        data = extent.tail[begin : begin + limit]
    after = at + len(data)
    return LogChunk(at, base64.b64encode(data).decode(), gap, after, after >= extent.total)


def _read_at(path: str, offset: int, limit: int) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, limit, offset)
    finally:
        os.close(fd)


def read_lines(path: str, extent: Extent) -> Iterator[bytes]:
    """Every kept line without its newline, the head's first; a line over 16 MiB is cut there, memory stays bounded."""
    try:
        with open(path, "rb") as file:
            while True:
                line = file.readline(LINE_LIMIT)
                if not line:
                    break
                if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
                    while True:
                        rest = file.readline(LINE_LIMIT)
                        if not rest or rest.endswith(b"\n"):
                            break
                yield line.rstrip(b"\r\n")
    except FileNotFoundError:
        pass
    if extent.tail:
        yield from extent.tail.split(b"\n")


def read_tail(path: str, extent: Extent, limit: int) -> bytes:
    """The last `limit` bytes of a stream."""
    if extent.tail:
        return extent.tail[-limit:]
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit)
    except FileNotFoundError:
        return b""
