"""Who a process is: host id, OS, boot id, pid and start time (S3). A pid alone is never judged."""

from __future__ import annotations

import os
import signal
import sys
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from .durable import create_durably
from .supervisor import read_boot_id, start_time

__all__ = [
    "ALIVE",
    "DEAD",
    "UNKNOWN",
    "attempt_processes",
    "can_signal",
    "judge_process",
    "read_boot_id",
    "signal_process",
    "unknown_attempts",
]

ALIVE, DEAD, UNKNOWN = "alive", "dead", "unknown"


def load_host_id(root: str) -> str:
    """This data root's own id, made once. The machine id is not used: cloned machines share it."""
    path = os.path.join(root, "host_id")
    try:
        with open(path, encoding="ascii") as file:
            found = file.read().strip()
            if found:
                return found
    except FileNotFoundError:
        pass
    create_durably(path, os.urandom(8).hex().encode() + b"\n")  # the first of two starters wins
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def os_name() -> str:
    return sys.platform


def judge_process(pid: int, start_time: Optional[int], boot_id: str) -> str:
    """ALIVE, DEAD or UNKNOWN for a process of this host.

    Another boot is dead. A missing start time can never turn into dead while the pid exists. A zombie is dead: it
    waits to be reaped and does nothing (proc_pid_stat(5), field 3).
    """
    if boot_id and boot_id != read_boot_id():
        return DEAD
    seen = _state_and_start(pid)
    if seen is None:
        return DEAD if os.path.isdir("/proc/self") else UNKNOWN
    state, started = seen
    if state in ("Z", "X"):
        return DEAD
    if start_time is None:
        return UNKNOWN
    return ALIVE if started == start_time else DEAD


def _state_and_start(pid: int) -> Optional[Tuple[str, int]]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def attempt_processes(attempt_id: str, places: Sequence[str]) -> List[Tuple[int, int]]:
    """(pid, start time) of every living process that the attempt left.

    It carries the run tag in its environment; or, when it took that off, it stands in one of `places`, is ours and has
    no terminal: a person who looks around there has one.
    """
    tag = b"SHUNTER_ATTEMPT=" + attempt_id.encode()
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid() or not (_is_tagged(name, tag) or _stands_in(name, places)):
            continue
        seen = _state_and_start(int(name))
        if seen is not None and seen[0] not in ("Z", "X"):
            found.append((int(name), seen[1]))
    return found


def unknown_attempts(tasks_dir: str, is_known: Callable[[str], bool]) -> Dict[str, List[int]]:
    """Processes of attempts that nobody here knows, in workspaces of this data root: an older ledger was put back."""
    place = b"SHUNTER_WORKSPACE=" + os.fsencode(tasks_dir) + b"/"
    found: Dict[str, List[int]] = {}
    for name in os.listdir("/proc"):
        words = _environment(name) if name.isdigit() else []
        tags = [word.partition(b"=")[2] for word in words if word.startswith(b"SHUNTER_ATTEMPT=")]
        if tags and any(word.startswith(place) for word in words):
            found.setdefault(tags[-1].decode("ascii", "replace"), []).append(int(name))
    return {attempt_id: sorted(pids) for attempt_id, pids in sorted(found.items()) if not is_known(attempt_id)}


def _environment(pid: str) -> List[bytes]:
    """Of our own processes; empty for those of others, and for zombies."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _is_tagged(pid: str, tag: bytes) -> bool:
    return tag in _environment(pid)


def _stands_in(pid: str, places: Sequence[str]) -> bool:
    try:
        directory = os.readlink(f"/proc/{pid}/cwd")
        if not any(directory == place or directory.startswith(place + "/") for place in places):
            return False
        with open(f"/proc/{pid}/stat", "rb") as file:
            terminal = int(file.read().rpartition(b")")[2].split()[4])
        return terminal == 0 and os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except (OSError, IndexError, ValueError):
        return False


def can_signal() -> bool:
    """Whether a process can be signalled without the risk that its pid belongs to another by then: Linux 5.3."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return hasattr(signal, "pidfd_send_signal")


def signal_process(pid: int, started: Optional[int], number: int) -> bool:
    """Signal exactly this process: through a pidfd, checked after it was opened, so a reused pid is never hit."""
    if started is None or not can_signal():
        return False
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start_time(pid) != started:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
