"""`bench/run [--write] [NAME…]`: run benchmarks, print their tables; with --write renew docs/performance.md."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path

from .measure import machine_facts
from .table import Table, as_markdown, as_text

NAMES = ("start_up", "submit", "memory", "parse", "turns", "capture", "round_trip", "claim", "pool")
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- written by bench/run --write: {name} -->", "<!-- end of {name} -->"


def main(words: list[str]) -> int:
    write, names = "--write" in words, [word for word in words if word != "--write"] or list(NAMES)
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.stderr.write(f"there is no benchmark {unknown[0]}; these are: {', '.join(NAMES)}\n")
        return 64
    facts = machine_facts()
    print("\n".join(facts))
    page = PAGE.read_text() if write else ""
    for name in names:
        began = time.monotonic()
        tables: list[Table] = import_module(f"bench.{name}").run()
        print("", *(as_text(table) for table in tables), sep="\n", flush=True)
        print(f"  ({name}: {time.monotonic() - began:.0f} s)")
        if write:
            facts_line = f"{time.strftime('%Y-%m-%d')}: {'; '.join(facts)}."
            page = with_section(page, name, "\n\n".join([*(as_markdown(table) for table in tables), facts_line]))
    if write:
        PAGE.write_text(page)
    return 0


def with_section(page: str, name: str, text: str) -> str:
    """The page with the text between the two marks of the name; at the end when it has no such marks."""
    begin, end = BEGIN.format(name=name), END.format(name=name)
    section = f"{begin}\n\n{text}\n\n{end}"
    if begin not in page or end not in page:
        return f"{page.rstrip()}\n\n{section}\n"
    return page[: page.index(begin)] + section + page[page.index(end) + len(end) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
