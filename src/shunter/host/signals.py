"""Reading what supervisors signed: `signals/<attempt>.<kind>`, believed only with the attempt's nonce (S4)."""

from __future__ import annotations

import json
from typing import Any, Dict, NamedTuple, Optional

from .durable import is_unusable, open_regular
from .layout import Layout

LIMIT_BYTES = 65536


class Exited(NamedTuple):
    """The agent's end, written once its whole tree was gone."""

    reason: str
    errno: int
    exit_code: Optional[int]
    signal: Optional[int]
    background: int
    stdout_bytes: int
    stderr_bytes: int
    cpu_s: Optional[float]
    peak_rss_kib: Optional[int]
    at: float
    oom_group: Optional[int] = (
        None  # processes of the attempt that the kernel ended for want of memory; None: not counted
    )
    oom_machine: Optional[int] = None  # likewise on the whole machine, while the attempt ran


class Launched(NamedTuple):
    pid: int
    start_time: Optional[int]
    at: float


def _read_signal(layout: Layout, attempt_id: str, kind: str, nonce: str) -> Optional[Dict[str, Any]]:
    body = _read_object(layout.signal(attempt_id, kind))
    if body is None or body.get("nonce") != nonce or body.get("attempt") != attempt_id:
        return None  # a wrong nonce counts as none
    return body


def read_exited(layout: Layout, attempt_id: str, nonce: str) -> Optional[Exited]:
    body = _read_signal(layout, attempt_id, "exited", nonce)
    try:
        # What a supervisor of an earlier version did not tell yet has a default.
        return None if body is None else Exited(**{name: body[name] for name in Exited._fields if name in body})
    except TypeError:
        return None


def read_launched(layout: Layout, attempt_id: str, nonce: str) -> Optional[Launched]:
    body = _read_signal(layout, attempt_id, "launched", nonce)
    try:
        return None if body is None else Launched(**{name: body[name] for name in Launched._fields})
    except KeyError:
        return None


def read_supervisor(layout: Layout, attempt_id: str) -> Optional[Dict[str, Any]]:
    """{pid, start_time, boot_id} of the supervisor, once it introduced itself: from then on it may have launched.

    Its launch names it again, for the case that somebody removed the job's directory under it.
    """
    body = _read_object(layout.job(attempt_id) + "/supervisor")
    if body is None or not isinstance(body.get("pid"), int):
        launched = _read_object(layout.signal(attempt_id, "launched")) or {}
        body = {name: launched.get("supervisor_" + name) for name in ("pid", "start_time", "boot_id")}
    return body if isinstance(body["pid"], int) else None


def _read_object(path: str) -> Optional[Dict[str, Any]]:
    """None for what supervisors do not write: an agent can reach these files."""
    try:
        with open(open_regular(path), "rb") as file:
            body = json.loads(file.read(LIMIT_BYTES))
    except (ValueError, RecursionError):
        return None
    except OSError as exc:
        if isinstance(exc, PermissionError) or not is_unusable(exc):
            raise  # no evidence: nothing follows from it
        return None
    return body if isinstance(body, dict) else None
