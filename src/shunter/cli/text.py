"""Text for terminals: control characters made visible, ages, plain tables. Colour follows NO_COLOR (no-color.org)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

NOT_KEPT = "over the output cap, or the disk was full"
COLOURS = {"green": "32", "red": "31", "yellow": "33", "blue": "34", "dim": "2", "bold": "1"}
COLOUR_OF_PHRASE = {
    "done": "green",
    "running": "blue",
    "needs_input": "yellow",
    "blocked": "yellow",
    "no_changes": "yellow",
    "unknown": "yellow",
    "uncertain": "yellow",
    "waiting": "dim",
    "dispatching": "blue",
    "finishing": "blue",
}


def visible(text: str, *, keep: str = "\t") -> str:
    """The text with every control, bidi or undecodable character shown as an escape, so it can do nothing."""
    if text.isprintable():
        return text
    return "".join(c if c in keep or c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:
        return f"\\x{number - 0xDC00:02x}"  # a byte that was no UTF-8
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def wants_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, colour: str | None) -> str:
    if colour is None or not wants_colour():
        return text
    return f"\x1b[{COLOURS[colour]}m{text}\x1b[0m"


def phrase_colour(phrase: str) -> str:
    return COLOUR_OF_PHRASE.get(phrase.split(" ", maxsplit=1)[0], "red" if "(closed)" not in phrase else "dim")


def clock(at: float) -> str:
    """Local time of day; with the date when that is not today."""
    then = time.localtime(at)
    return time.strftime("%H:%M:%S" if then[:3] == time.localtime()[:3] else "%Y-%m-%d %H:%M:%S", then)


def zone(at: float) -> str:
    """The name of the zone that `clock` tells the time of, as it is called then."""
    return time.localtime(at).tm_zone


def age(seconds: float) -> str:
    """Two significant units at most: 8s, 3m, 2h 05m, 4d."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d"


def count(number: int, noun: str) -> str:
    """1 commit, 2 commits."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 120 else age(seconds)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], colours: Sequence[str | None] = ()) -> str:
    """Aligned columns; the last one is cut to the terminal. `colours` colours the second column of each row."""
    import shutil

    width = shutil.get_terminal_size((120, 24)).columns
    widths = [max(len(row[n]) for row in (header, *rows)) for n in range(len(header) - 1)]
    room = max(20, width - sum(widths) - 2 * len(widths))
    lines = []
    for number, row in enumerate((header, *rows)):
        cells = [cell.ljust(size) for cell, size in zip(row[:-1], widths, strict=True)]
        last = row[-1] if len(row[-1]) <= room or not sys.stdout.isatty() else row[-1][: room - 1] + "…"
        if number == 0:
            lines.append(coloured("  ".join([*cells, last]).rstrip(), "bold"))
            continue
        if colours and colours[number - 1]:
            cells[1] = coloured(cells[1], colours[number - 1])
        lines.append("  ".join([*cells, last]).rstrip())
    return "\n".join(lines)
