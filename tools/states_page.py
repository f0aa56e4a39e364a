"""Writes the state diagrams of ARCHITECTURE.md from the tables; with --check only says whether they are up to date."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from generated import write_or_check

from shunter.model import states

PAGE = Path(__file__).parent.parent / "ARCHITECTURE.md"
BEGIN, END = "<!-- states: tools/states_page.py -->\n", "<!-- end of states -->\n"


def diagram(name: str, moves: Mapping[StrEnum, frozenset[StrEnum]]) -> list[str]:
    """One line a state, in the order of the enumeration; a state without a line is an end."""
    states_in_order = list(type(next(iter(moves))))
    arrows = [
        f"  {state} --> {' & '.join(each for each in states_in_order if each in moves[state])}"
        for state in states_in_order
        if moves[state]
    ]
    return ["```mermaid", "flowchart LR", f"  subgraph {name}", *arrows, "  end", "```"]


def block() -> str:
    parts = (
        ("task", states.TASK_MOVES),
        ("turn", states.TURN_MOVES),
        ("step", states.STEP_MOVES),
        ("push", states.PUSH_MOVES),
    )
    lines = [line for name, moves in parts for line in diagram(name, moves)]  # type: ignore[arg-type]
    return BEGIN + "\n".join(lines) + "\n" + END


def main() -> None:
    text = PAGE.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"states_page: {PAGE.name} lacks {BEGIN.strip()} or {END.strip()}")
    write_or_check(PAGE, before + block() + after)


if __name__ == "__main__":
    main()
