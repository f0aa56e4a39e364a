"""Figures as a table: medians and p95 of both sides, the budget, and by how much it was missed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Row:
    """One thing measured. At most one of the limits is given: `times` and `plus` are relative to the comparison."""

    what: str
    ours: Sequence[float]
    theirs: Sequence[float] = ()
    unit: str = "ms"
    times: float | None = None
    plus: float | None = None
    at_most: float | None = None

    @property
    def limit(self) -> float | None:
        if self.times is not None:
            return self.times * median(self.theirs)
        if self.plus is not None:
            return self.plus + median(self.theirs)
        return self.at_most

    @property
    def budget(self) -> str:
        if self.times is not None:
            return f"{self.times:g} ×"
        if self.plus is not None:
            return f"+ {self.plus:g} {self.unit}"
        return "" if self.at_most is None else f"{self.at_most:g} {self.unit}"

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        over = median(self.ours) - self.limit
        return "met" if over <= 0 else f"missed by {shown(over)} {self.unit}"

    def cells(self) -> tuple[str, ...]:
        ratio = f"{median(self.ours) / median(self.theirs):.1f} ×" if self.theirs else ""
        return (
            self.what,
            spread(self.ours, self.unit),
            spread(self.theirs, self.unit) if self.theirs else "",
            ratio,
            self.budget,
            self.verdict,
            str(len(self.ours)),
        )


@dataclass(frozen=True)
class Table:
    """`against` says what the comparison is; `notes` are lines below the table."""

    title: str
    against: str
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    @property
    def header(self) -> tuple[str, ...]:
        return ("what", "shunter", self.against or "-", "ratio", "budget", "", "runs")


def shown(value: float) -> str:
    """Three significant digits."""
    if value == 0 or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def spread(values: Sequence[float], unit: str) -> str:
    return f"{shown(median(values))} {unit} (p95 {shown(percentile(values, 0.95))})"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def as_text(table: Table) -> str:
    rows = [table.header, *(row.cells() for row in table.rows)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(table.header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([table.title, *(f"  {line}" for line in lines), *(f"  {note}" for note in table.notes)])


def as_markdown(table: Table) -> str:
    lines = [
        f"### {table.title}",
        "",
        "| " + " | ".join(table.header) + " |",
        "| --- |" + " ---: |" * (len(table.header) - 1),
        *("| " + " | ".join(row.cells()) + " |" for row in table.rows),
    ]
    if table.notes:
        lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join(lines)
