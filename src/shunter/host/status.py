"""What is known of an attempt here, from the ledger and from what its supervisor left; and asking it to stop."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Optional, Tuple

from ..wire.codec import decode, loads
from ..wire.errors import ShunterError
from ..wire.messages import AttemptStatus, End, JobSpec
from .bell import ring
from .durable import write_durably
from .identity import DEAD, judge_process
from .layout import Layout
from .ledger import Ledger
from .signals import read_exited, read_launched, read_supervisor


def read_status(layout: Layout, ledger: Ledger, attempt_id: str) -> AttemptStatus:
    row = ledger.find(attempt_id)
    if row is None:
        return AttemptStatus(attempt_id, "unknown")
    if row["state"] == "tombstoned":
        return AttemptStatus(attempt_id, "tombstoned")
    spec = loads(JobSpec, row["spec"], where="ledger", code="LEDGER_DAMAGED")
    launched = read_launched(layout, attempt_id, spec.nonce)
    exited = read_exited(layout, attempt_id, spec.nonce)
    state = "ended" if row["state"] == "ended" else "accepted"
    if state == "accepted" and exited:
        state = "exited"
    elif state == "accepted" and launched:
        state = "launched"
    end = loads(End, row["end"], where="ledger", code="LEDGER_DAMAGED") if row["end"] else None
    return AttemptStatus(
        attempt_id,
        state,
        session_id=read_session(layout, spec.task_id),
        accepted_at=row["accepted_at"],
        launched_at=launched.at if launched else None,
        exited_at=exited.at if exited else None,
        ended_at=row["ended_at"],
        pid=launched.pid if launched and state == "launched" else None,
        cancel_requested=os.path.exists(os.path.join(layout.job(attempt_id), "cancel")),
        end=end,
        silent_s=silent_s(layout, spec, launched.at) if launched and state == "launched" else None,
        notices=decode(Tuple[str, ...], json.loads(row["notices"])),
    )


def silent_s(layout: Layout, spec: JobSpec, launched_at: float) -> Optional[float]:
    """How long the agent has said nothing, once that is longer than the turn's limit; it may wait for an answer."""
    heard_at = launched_at
    for name in ("stdout", "stderr"):
        with contextlib.suppress(OSError):
            heard_at = max(heard_at, os.stat(os.path.join(layout.job(spec.attempt_id), name)).st_mtime)
    silent = time.time() - heard_at
    return silent if 0 < spec.limits.silent_s <= silent else None


def read_session(layout: Layout, task_id: str) -> Optional[str]:
    try:
        with open(layout.session(task_id), encoding="utf-8") as file:
            return file.read().strip() or None
    except FileNotFoundError:
        return None


def cancel_attempt(layout: Layout, ledger: Ledger, attempt_id: str, actor: str) -> AttemptStatus:
    """The intent is a file that the supervisor looks for; the bell only wakes it. Repeating is harmless.

    No pid is used, so a cancel that comes late finds no bell and hits nobody.
    """
    row = ledger.find(attempt_id)
    if row is not None and row["state"] == "accepted":
        path, bell = (os.path.join(layout.job(attempt_id), name) for name in ("cancel", "bell"))
        if not os.path.exists(path):
            try:
                write_durably(path, actor.encode("utf-8", "surrogateescape") + b"\n")
                ledger.note(actor, "cancel", attempt_id)
            except (OSError, ShunterError):  # a full disk must not keep a turn running
                if not ring(bell, "cancel"):
                    raise
        ring(bell, "cancel")
    return read_status(layout, ledger, attempt_id)


def supervisor_state(layout: Layout, attempt_id: str) -> str:
    """`starting` (nothing was launched, it may be started), `alive` or `dead`; whoever is not proven dead is alive."""
    seen = read_supervisor(layout, attempt_id)
    if seen is not None:
        return (
            "dead" if judge_process(seen["pid"], seen.get("start_time"), seen.get("boot_id", "")) == DEAD else "alive"
        )
    job = layout.job(attempt_id)
    damaged = os.path.exists(os.path.join(job, "supervisor")) or not os.path.exists(os.path.join(job, "start"))
    return "dead" if damaged else "starting"
