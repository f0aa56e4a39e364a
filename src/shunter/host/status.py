"""What is known of an attempt here, from the ledger and from what its supervisor left; and asking it to stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any, Dict, Optional, Tuple

from ..agents.options import is_session_id
from ..wire.codec import decode, loads
from ..wire.errors import ShunterError
from ..wire.messages import AttemptStatus, End, JobSpec
from .bell import ring
from .durable import read_regular, write_durably
from .identity import DEAD, judge_process, signal_process
from .layout import Layout
from .ledger import Ledger
from .logs import read_tail
from .signals import read_exited, read_launched, read_supervisor

QUESTION_STANDS_S = 10.0  # after it, what asks and goes on by itself has gone on
LAST_WORDS_BYTES = 1 << 16


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
    quiet_s = quiet_for(layout, attempt_id, launched.at) if launched and state == "launched" else 0.0
    asks = open_question(layout, spec) if quiet_s >= QUESTION_STANDS_S else None
    is_silent = 0 < spec.limits.silent_s <= quiet_s
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
        silent_s=quiet_s if is_silent or asks is not None else None,
        asks=asks,
        notices=notices_of(row),
    )


def notices_of(row: Dict[str, Any]) -> Tuple[str, ...]:
    """What was told when the attempt was accepted; a row of the ledger."""
    found: Tuple[str, ...] = decode(Tuple[str, ...], json.loads(row["notices"]))
    return found


def quiet_for(layout: Layout, attempt_id: str, launched_at: float) -> float:
    """Seconds in which a running agent has said nothing."""
    heard_at = launched_at
    for name in ("stdout", "stderr"):
        with contextlib.suppress(OSError):
            heard_at = max(heard_at, os.stat(os.path.join(layout.job(attempt_id), name)).st_mtime)
    return time.time() - heard_at


def open_question(layout: Layout, spec: JobSpec) -> Optional[str]:
    """What the agent asks, when that is the last that it said."""
    from ..agents.table import event_reader  # only where an agent has gone quiet

    tail = read_tail(os.path.join(layout.job(spec.attempt_id), "stdout"), LAST_WORDS_BYTES)
    line = tail.rstrip(b"\n").rpartition(b"\n")[2]
    events = event_reader(spec.agent, spec.fields)(line)
    return events[-1].text if events and events[-1].kind == "prompt" else None


def read_session(layout: Layout, task_id: str) -> Optional[str]:
    """What the agent named, unless it could pose as something else on a command line."""
    found = (read_regular(layout.session(task_id), 4096) or b"").decode("utf-8", "replace").strip()
    return found if is_session_id(found) else None


def cancel_attempt(layout: Layout, ledger: Ledger, attempt_id: str, actor: str) -> AttemptStatus:
    """The intent is a file that the supervisor looks for; the bell only wakes it. Repeating is harmless.

    Where somebody removed the bell, a signal wakes it; whoever publishes already ignores that one.
    """
    row = ledger.find(attempt_id)
    if row is not None and row["state"] == "accepted":
        job = layout.job(attempt_id)
        path, bell = (os.path.join(job, name) for name in ("cancel", "bell"))
        if not os.path.exists(path):
            try:
                with contextlib.suppress(OSError):
                    os.mkdir(job, 0o700)  # somebody may have removed it
                write_durably(path, actor.encode("utf-8", "surrogateescape") + b"\n")
                ledger.note(actor, "cancel", attempt_id)
            except (OSError, ShunterError):  # a full disk must not keep a turn running
                if not ring(bell, "cancel"):
                    raise
        if not ring(bell, "cancel") and os.path.exists(path):
            seen = read_supervisor(layout, attempt_id) or {}
            signal_process(seen.get("pid", -1), seen.get("start_time"), signal.SIGTERM)
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
