"""Durations on the command line, in the form that configuration files take."""

from __future__ import annotations

import click

from ..fleet.forms import duration


class DurationType(click.ParamType[float]):
    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return duration(value if not value.isdigit() else int(value))
        except ValueError as exc:
            self.fail(f"expected {exc}", param, ctx)


DURATION = DurationType()
