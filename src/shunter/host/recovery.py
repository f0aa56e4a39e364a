"""What is done about an attempt whose supervisor died: end what it left, wait until all is quiet, publish, say lost.

`serve` starts this as a process of its own, so that it survives the session. It holds the attempt's lock; a second one
goes at once. Processes are found by the run tag in their environment and by the attempt's cgroup, and signalled through
a pidfd that was checked against their start time: never a process that is not ours.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from typing import Optional

from .ending import finish_attempt, unknown_end
from .identity import signal_process, tagged_processes
from .jobs import supervisor_state, writable_cgroup
from .layout import Layout
from .ledger import Ledger
from .liveness import Evidence, recovery_veto
from .signals import read_exited, read_supervisor


def needs_recovery(layout: Layout, attempt_id: str) -> bool:
    """For an attempt that the ledger has as accepted."""
    return supervisor_state(layout, attempt_id) == "dead"


def recover_attempt(layout: Layout, ledger: Ledger, attempt_id: str) -> None:
    """Blocks until the attempt is ended. Harmless when somebody else ended it."""
    spec = ledger.load_spec(attempt_id)
    ledger.note("recovery", "supervisor_died", attempt_id)
    exited = read_exited(layout, attempt_id, spec.nonce)
    if exited is None:
        end_left_processes(attempt_id)
        while True:
            evidence = collect_evidence(layout, attempt_id, quiet_s=spec.limits.quiet_s)
            if not recovery_veto(evidence):
                break
            end_left_processes(attempt_id)
            time.sleep(min(1.0, max(0.05, spec.limits.quiet_s / 10)))
        exited = unknown_end(layout, attempt_id)
    row = ledger.find(attempt_id)
    if row is not None and row["state"] == "accepted":
        finish_attempt(layout, ledger, spec, exited)


def end_left_processes(attempt_id: str) -> int:
    """How many were killed. Rounds, because a process may fork while we look."""
    parent = writable_cgroup()
    if parent:
        group = os.path.join(parent, "shunter-" + attempt_id)
        with contextlib.suppress(OSError), open(os.path.join(group, "cgroup.kill"), "wb", 0) as file:
            file.write(b"1")
        with contextlib.suppress(OSError):
            os.rmdir(group)
    killed = 0
    for _ in range(100):
        found = tagged_processes(attempt_id)
        if not found:
            break
        killed += sum(signal_process(pid, started, signal.SIGKILL) for pid, started in found)
        time.sleep(0.01)
    return killed


def collect_evidence(layout: Layout, attempt_id: str, *, quiet_s: float) -> Evidence:
    seen = read_supervisor(layout, attempt_id)
    return Evidence(
        identity="full" if seen and seen.get("start_time") is not None else "partial",
        host="same",
        signal="launched" if os.path.exists(layout.signal(attempt_id, "launched")) else "none",
        report="none",
        result_file=False,
        process="alive" if tagged_processes(attempt_id) else "dead",
        supervisor="dead",
        heartbeat_recent=False,
        files_recent=moved_within(layout, attempt_id, quiet_s),
    )


def moved_within(layout: Layout, attempt_id: str, window_s: float) -> bool:
    """Whether any file of the job or its workspace was changed in the last `window_s` seconds."""
    now = time.time()

    def is_recent(mtime: float) -> bool:
        return now - window_s < mtime < now + 5  # a time far in the future is a moved clock, not a movement

    task_id = attempt_id.split("-", maxsplit=1)[0]
    job = layout.job(attempt_id)
    if any(is_recent(_mtime(os.path.join(job, name))) for name in ("stdout", "stderr")):
        return True
    pending = [layout.workspace(task_id)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if is_recent(entry.stat(follow_symlinks=False).st_mtime):
                        return True
                    if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                        pending.append(entry.path)
        except OSError:
            continue
    return False


def _mtime(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def take_recovery_lock(layout: Layout, attempt_id: str) -> Optional[int]:
    fd = os.open(os.path.join(layout.job(attempt_id), "recovery.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def main() -> None:
    """argv: data root, attempt id."""
    layout = Layout(sys.argv[1])
    if take_recovery_lock(layout, sys.argv[2]) is None:
        return
    ledger = Ledger(layout.ledger)
    row = ledger.find(sys.argv[2])
    if row is not None and row["state"] == "accepted" and needs_recovery(layout, sys.argv[2]):
        recover_attempt(layout, ledger, sys.argv[2])
