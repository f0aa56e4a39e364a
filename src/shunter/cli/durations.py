"""Durations and times on the command line; durations have the form that configuration files take."""

from __future__ import annotations

import datetime
import time

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


class AgoType(DurationType):
    """Seconds before now, told as a duration or as a time; one without a zone is of this machine's."""

    name = "duration or time"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        at = None if isinstance(value, float) else _time_at(value)
        if at is not None:
            return max(0.0, time.time() - at)
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            words = 'a duration, such as "90s", "10m" or "2h", or a time, such as "14:05" or "2026-03-01T14:05:00Z"'
            self.fail(f"expected {words}", param, ctx)


def _time_at(text: str) -> float | None:
    """Unix seconds; a time of day alone is the last such time."""
    now = datetime.datetime.now().astimezone()
    try:
        if ":" in text[:3]:
            found = datetime.datetime.combine(now.date(), datetime.time.fromisoformat(text))
            if found.timestamp() > now.timestamp():
                found -= datetime.timedelta(days=1)
            return found.timestamp()
        return datetime.datetime.fromisoformat(text).timestamp() if "-" in text else None
    except (ValueError, OverflowError):
        return None


DURATION = DurationType()
AGO = AgoType()
