"""Ids: what they look like and how they are made. Paths and ref names are built from checked ids only.

A task id is ten characters of lower-case base 32 without i, l, o and u (50 random bits), so its first few characters
are usually unique. A turn adds its number, an attempt adds six random characters:
`7k2m9x4q1c` / `7k2m9x4q1c-1` / `7k2m9x4q1c-1-x81tfa`.
"""

from __future__ import annotations

import os
import re

from .errors import ShunterError

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID = re.compile(r"[0-9a-z]+(-[0-9a-z]+)*\Z")
_OID = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\Z")
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?\Z")


def _random(length: int) -> str:
    return "".join(ALPHABET[byte % 32] for byte in os.urandom(length))


def new_task_id() -> str:
    return _random(10)


def turn_id(task_id: str, number: int) -> str:
    """Id of the task's turn `number`, counted from 1."""
    return f"{task_id}-{number}"


def new_attempt_id(of_turn: str) -> str:
    return f"{of_turn}-{_random(6)}"


def turn_of(attempt_id: str) -> str:
    return attempt_id.rpartition("-")[0]


def task_of(turn_id: str) -> str:
    return turn_id.rpartition("-")[0]


def number_of(turn_id: str) -> int:
    return int(turn_id.rpartition("-")[2])


def new_nonce() -> str:
    """32 hexadecimal digits nobody can guess."""
    return os.urandom(16).hex()


def checked_id(value: str) -> str:
    """The value itself when it is safe as one part of a path and of a ref name; raises PROTOCOL otherwise."""
    if not isinstance(value, str) or len(value) > 64 or not _ID.match(value):
        raise ShunterError("PROTOCOL", f"not an id: {value!r}")
    return value


def checked_oid(value: str) -> str:
    """A full SHA-1 or SHA-256 object id in lower-case hexadecimal; raises PROTOCOL otherwise."""
    if not isinstance(value, str) or not _OID.match(value):
        raise ShunterError("PROTOCOL", f"not an object id: {value!r}")
    return value


def is_host_name(value: str) -> bool:
    """Host names become part of a ref: lower case, digits, dot, dash, underscore; no `..` and no `.lock` at the end."""
    return bool(_NAME.match(value)) and ".." not in value and not value.endswith(".lock")
