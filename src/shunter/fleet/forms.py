"""Allowed forms of configuration values: a form turns a TOML value into ours, or says in words what it wants.

A form is a function that raises `FormError` with the words of what is allowed ("a whole number of at least 1").
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..agents.exec import FIELDS

Form = Callable[[Any], Any]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SSH_TARGET = re.compile(r"[A-Za-z0-9_.%+@][A-Za-z0-9_.%+@-]{0,250}\Z")
_MACHINE = re.compile(r"[a-z0-9_.-]+(:\d+)?\Z|\[[0-9a-f:.]+\](:\d+)?\Z")
_FIELD_PATH = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class FormError(ValueError):
    """The text is the allowed form."""


def text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise FormError("a text that is not empty")
    return value


def ssh_target(value: Any) -> str:
    """A colon would begin the path in a git URL; ports and IPv6 addresses belong into the user's ssh configuration."""
    if not isinstance(value, str) or not _SSH_TARGET.match(value):
        raise FormError(
            "user@machine or a name of ~/.ssh/config, without blanks and colons; a port goes into that file"
        )
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise FormError("true or false")
    return value


def path(value: Any) -> Path:
    if not isinstance(value, str) or "\0" in value or not Path(value).expanduser().is_absolute():
        raise FormError("an absolute path, or one that begins with ~/")
    return Path(value).expanduser()


def any_path(value: Any) -> str:
    """On another machine, so it stays as it is written."""
    if not isinstance(value, str) or "\0" in value or not value.startswith(("/", "~/")):
        raise FormError("an absolute path, or one that begins with ~/")
    return value


def duration(value: Any) -> float:
    """Seconds; "90s", "10m", "2h", "1d", or a number of seconds."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    found = _DURATION.match(value) if isinstance(value, str) else None
    if found is None:
        raise FormError('a duration, such as "90s", "10m", "2h" or a number of seconds')
    return float(found[1]) * _UNIT_S[found[2]]


def whole(least: int, most: int = 2**31 - 1) -> Form:
    words = f"a whole number of at least {least}" if most == 2**31 - 1 else f"a whole number from {least} to {most}"

    def form(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise FormError(words)
        return value

    return form


def money(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise FormError("an amount greater than 0, such as 2.5")
    return float(value)


def choice(*words: str) -> Form:
    def form(value: Any) -> str:
        if value not in words or not isinstance(value, str):
            raise FormError("one of " + ", ".join(f'"{word}"' for word in words))
        return value

    return form


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each and "\0" not in each for each in value):
        raise FormError('a list of texts, such as ["one", "two"]')
    return tuple(value)


def tags(value: Any) -> tuple[str, ...]:
    """Texts; one that begins with `origin:` names a machine, as `wire.origin.capability` does."""
    if not isinstance(value, list) or not all(isinstance(each, str) and _is_tag(each) for each in value):
        raise FormError('a list of texts, such as ["gpu", "origin:github.com"]; after origin: a machine in lower case')
    return tuple(value)


def _is_tag(text: str) -> bool:
    kind, _, machine = text.partition("origin:")
    return bool(text) and "\0" not in text and (kind != "" or _MACHINE.match(machine) is not None)


def field_paths(value: Any) -> dict[str, str]:
    """Where the JSON lines of a configured command hold what."""
    fine = isinstance(value, dict) and all(
        name in FIELDS and isinstance(path, str) and _FIELD_PATH.match(path) for name, path in value.items()
    )
    if not fine:
        raise FormError(f'a table of dotted paths, such as {{ message = "item.text" }}, for {", ".join(FIELDS)}')
    return dict(value)


def variables(value: Any) -> dict[str, str]:
    """Environment variables; names that shunter sets itself are refused."""
    fine = isinstance(value, dict) and all(
        _VARIABLE.match(name) and not name.startswith("SHUNTER_") and isinstance(each, str) and "\0" not in each
        for name, each in value.items()
    )
    if not fine:
        raise FormError("a table of variable names (none of SHUNTER_*) and texts")
    return dict(value)
