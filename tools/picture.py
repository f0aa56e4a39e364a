"""Draws docs/demo.svg: `shunter demo` is run on a terminal of its own, and what stands there at the end is the picture.

The fonts are those of whoever looks; nothing is fetched.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import shutil
import struct
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent.parent / "docs" / "demo.svg"
COLUMNS, ROWS = 102, 50
LAST_LINE = "The branches in the project:"  # what follows are commands to copy, which a picture is no place for
LEFT_BEHIND = re.compile(r"rm -rf (/\S*/shunter-demo-\w+)\)")
CONTROL = re.compile(r"\x1b\[(\??\d*)([AKhl])|(\r\n)|(\r)|(\n)")

SVG = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def printed_by(argv: list[str]) -> str:
    """What the command writes to a terminal, control sequences and all."""
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.execve(argv[0], argv, {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)})
    seen = b""
    while True:
        try:
            data = os.read(fd, 65536)
        except OSError:  # EIO: the other side has gone
            break
        if not data:
            break
        seen += data
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"picture: {' '.join(argv)} failed:\n{seen.decode(errors='replace')}")
    return seen.decode()


def screen(written: str) -> list[str]:
    """The lines as they stand at the end; cursor up, erase line and line ends are all that is used."""
    lines, row, at = [""], 0, 0
    for found in CONTROL.finditer(written):
        lines[row] += written[at : found.start()]
        at = found.end()
        count, kind = found[1], found[2]
        if found[3] or found[5]:
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif kind == "A":
            row -= int(count or 1)
        elif kind == "K":
            lines[row] = ""
    lines[row] += written[at:]
    return lines


def main() -> None:
    shunter = Path(__file__).parent.parent / ".venv" / "bin" / "shunter"
    written = printed_by([str(shunter), "demo"])
    left = LEFT_BEHIND.search(written)
    if left:
        shutil.rmtree(left[1])
    lines = screen(written)
    lines = lines[: lines.index(LAST_LINE)] if LAST_LINE in lines else lines
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ shunter demo", style="bold"))
    for line in "\n".join(lines).rstrip().split("\n"):
        console.print(Text.from_ansi(line))
    svg = console.export_svg(title="shunter demo", code_format=SVG, unique_id="demo")
    PICTURE.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")
    print(PICTURE)


if __name__ == "__main__":
    main()
