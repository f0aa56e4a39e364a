"""What is done about an attempt whose supervisor died: end what it left, wait until all is quiet, publish, say lost.

`serve` starts this as a process of its own, so that it survives the session. It holds the attempt's lock; a second one
goes at once. Processes are found by the run tag in their environment and by the attempt's cgroup, and signalled through
a pidfd that was checked against their start time: never a process that is not ours. Where there is no pidfd (Linux
before 5.3) nothing is signalled: the audit says so, and the attempt waits until its processes end by themselves.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from typing import List, Optional

from .ending import finish_attempt, unknown_end
from .identity import attempt_processes, can_signal, signal_process
from .layout import Layout
from .ledger import Ledger
from .liveness import Evidence, recovery_veto
from .logs import find_pieces
from .signals import read_exited, read_launched, read_supervisor
from .status import supervisor_state
from .supervisor import read_start


def needs_recovery(layout: Layout, attempt_id: str) -> bool:
    """For an attempt that the ledger has as accepted."""
    return supervisor_state(layout, attempt_id) == "dead"


def recover_attempt(layout: Layout, ledger: Ledger, attempt_id: str) -> None:
    """Blocks until the attempt is ended. Harmless when somebody else ended it."""
    spec = ledger.load_spec(attempt_id)
    ledger.note("recovery", "supervisor_died", attempt_id)
    exited = read_exited(layout, attempt_id, spec.nonce)
    if exited is None:
        if not can_signal():
            ledger.note("recovery", "cannot_signal", attempt_id, "no pidfd on this kernel: waiting for its processes")
        end_left_processes(layout, attempt_id)
        while recovery_veto(collect_evidence(layout, spec.nonce, attempt_id, quiet_s=spec.limits.quiet_s)):
            time.sleep(min(1.0, max(0.05, spec.limits.quiet_s / 10)))
            end_left_processes(layout, attempt_id)
        exited = unknown_end(layout, attempt_id)
    finish_attempt(layout, ledger, spec, exited)


def end_left_processes(layout: Layout, attempt_id: str) -> int:
    """How many were killed. Rounds, because a process may fork while we look."""
    group = _cgroup_of(layout, attempt_id)
    if group:
        with contextlib.suppress(OSError), open(os.path.join(group, "cgroup.kill"), "wb", 0) as file:
            file.write(b"1")
        with contextlib.suppress(OSError):
            os.rmdir(group)
    killed = 0
    for _ in range(100):
        found = attempt_processes(attempt_id, _places(layout, attempt_id))
        if not found:
            break
        killed += sum(signal_process(pid, started, signal.SIGKILL) for pid, started in found)
        time.sleep(0.01)
    return killed


def _cgroup_of(layout: Layout, attempt_id: str) -> Optional[str]:
    """As its supervisor was told to make it: this process may be in another one."""
    try:
        parent = read_start(layout.job(attempt_id)).text(b"cgroup")
    except OSError:
        return None
    return os.path.join(parent, "shunter-" + attempt_id) if parent else None


def _places(layout: Layout, attempt_id: str) -> List[str]:
    """Where only the attempt's own processes have business: a task has one attempt at a time."""
    task_id = attempt_id.split("-", maxsplit=1)[0]
    return [os.path.realpath(path) for path in (layout.workspace(task_id), layout.job(attempt_id))]


def collect_evidence(layout: Layout, nonce: str, attempt_id: str, *, quiet_s: float) -> Evidence:
    seen = read_supervisor(layout, attempt_id)
    return Evidence(
        identity="full" if seen and seen.get("start_time") is not None else "partial",
        host="same",
        signal="launched" if read_launched(layout, attempt_id, nonce) else "none",
        report="none",
        result_file=False,
        process="alive" if attempt_processes(attempt_id, _places(layout, attempt_id)) else "dead",
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
    pieces = (piece for name in ("stdout", "stderr") for piece in find_pieces(os.path.join(job, name)))
    if any(is_recent(_mtime(piece.path)) for piece in pieces):
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
    fd = os.open(layout.recovery_lock(attempt_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
