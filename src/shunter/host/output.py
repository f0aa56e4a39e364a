"""What a supervisor keeps of an agent's output, and what it looks for in it. `os` and nothing else: see supervisor.

A stream is a row of pieces on disk, each named for where it begins: `stdout` holds the head, `stdout@<offset>` what
follows from that offset on. Once the cap is reached there are two pieces after the head, the older one full, so the
last `tail_bytes` are on disk at every moment, whatever happens to this process. What the disk does not take is a gap:
an agent never waits for us. Beside it, `times.stdout` says now and then when output came. Read by `logs`.
"""

from __future__ import annotations

import os

from .durable import remove, write_all

TIMES = "times."  # and the stream's name
LINE_LIMIT = 1 << 18  # a longer line is not searched for the session id
# Neither follows a link nor waits for the reader of a pipe: what an agent put in the way of a piece makes a gap.
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Log:
    """One stream. `budget` holds one number, the head bytes that both streams may still take."""

    def __init__(self, path: str, budget: list[int], tail_bytes: int) -> None:
        self.path, self.budget, self.tail_bytes = path, budget, tail_bytes
        self.seen = 0  # bytes that the agent wrote
        self.pieces: list[str] = []  # after the head, oldest first
        self.is_head = True
        self.used = self.room = 0  # of the piece that is written now
        self.fd = _opened(path)

    def write(self, data: bytes) -> None:
        if self.is_head:
            data = self._write_head(data)
        while data:
            if not self.room:
                self._begin_piece()
            part = data[: self.room]
            done = write_all(self.fd, part)
            self.used += done
            self.room -= done
            self.seen += done
            data = data[done:]
            if done < len(part):
                self.seen += len(data)
                self.room = 0  # the next bytes begin a piece at their own offset
                break

    def _write_head(self, data: bytes) -> bytes:
        """Gives back what belongs behind the head."""
        fits = data[: self.budget[0]]
        done = write_all(self.fd, fits)
        self.seen += done
        self.budget[0] = self.budget[0] - done if done == len(fits) else 0
        self.is_head = done == len(data)
        return data[done:]

    def _begin_piece(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
        if self.pieces and not self.used:
            remove(self.pieces.pop())
        elif len(self.pieces) == 2:
            remove(self.pieces.pop(0))
        self.pieces.append(self.path + "@" + str(self.seen))
        self.fd = _opened(self.pieces[-1])
        self.used, self.room = 0, self.tail_bytes


def _opened(path: str) -> int:
    try:
        return os.open(path, NEW_FILE, 0o600)
    except OSError:
        return -1  # no room for a name, say: every write fails and is a gap


class Times:
    """When output came: rows of `offset seconds`, so that a stream can be read from a time on.

    A row stands for the bytes that came from then to the next row, and its offset is where the first of their lines
    begins. Rows are at least `spacing_s` apart, so a week of output is some thousands of them.
    """

    def __init__(self, path: str) -> None:
        directory, name = os.path.split(path)
        self.fd = _opened(os.path.join(directory, TIMES + name))
        self.line = 0  # where the line begins that the next byte belongs to
        self.first = self.last = self.due = -1.0

    def note(self, offset: int, data: bytes, now: float) -> None:
        """Before the bytes are written, so that whoever sees them finds their row."""
        if now >= self.due or now < self.last:  # the clock may be set back
            if self.first < 0:
                self.first = now
            write_all(self.fd, b"%d %.3f\n" % (self.line, now))
            self.last, self.due = now, now + spacing_s(now - self.first)
        newline = data.rfind(b"\n")
        if newline >= 0:
            self.line = offset + newline + 1


def spacing_s(age_s: float) -> float:
    """Between rows, for a stream whose first row is so old."""
    return max(1.0, age_s / 1000)


class SessionSearch:
    """Finds the session id by bytes: the string value of `key` in the first line that holds `marker`.

    Both must be in a line that begins like a JSON object; a quoted mention inside a string has backslashes.
    """

    def __init__(self, marker: bytes, key: bytes) -> None:
        self.marker, self.key = marker, b'"' + key + b'"'
        self.pending = b""
        self.skipping = False  # inside a line over the limit
        self.done = not marker

    def feed(self, data: bytes) -> str | None:
        """The id, once, when these bytes complete the line."""
        lines = data.split(b"\n")
        if not self.skipping:
            lines[0] = self.pending + lines[0]
        elif len(lines) > 1:
            self.skipping = False
            lines.pop(0)
        else:
            return None
        self.pending = lines.pop()
        if len(self.pending) > LINE_LIMIT:
            self.pending, self.skipping = b"", True
        for line in lines:
            found = self._value(line)
            if found:
                self.done, self.pending = True, b""
                return found
        return None

    def _value(self, line: bytes) -> str | None:
        if self.marker not in line or line.lstrip()[:1] != b"{":
            return None
        at = line.find(self.key)
        if at < 0:
            return None
        rest = line[at + len(self.key) : at + len(self.key) + 300].lstrip()
        if rest[:1] != b":":
            return None
        rest = rest[1:].lstrip()
        value, quote, _ = rest[1:].partition(b'"')
        sane = all(byte in b"-_.:" or 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 for byte in value)
        return value.decode() if rest[:1] == b'"' and quote and 0 < len(value) <= 200 and sane else None
