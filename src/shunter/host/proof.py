"""What set-up and `host check` look at: the file system of the data root, locks, execution, lingering, a sleeper.

Nothing here touches a task; what is made for a proof is named `proof-…` and removed by it.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import resource
import select
import subprocess
import sys
import time
from typing import List, Optional, Tuple

from ..wire.errors import ShunterError
from ..wire.ids import checked_id
from ..wire.messages import Contents, HeldTask, Proof, ProofRef, Sleeper, Slept, Tidied
from .closing import find_loose_work, last_published
from .detached import lingers, spawn_detached
from .durable import remove
from .flock import hold_lock
from .gitrun import run_git
from .identity import judge_process, read_boot_id, signal_process
from .layout import Layout
from .ledger import Ledger
from .mirror import base_ref, result_ref
from .remove import remove_tree
from .supervisor import start_time

# A sleeper that nobody ends, because its proof was broken off, goes by itself. Home may take two calls and an opening
# of a session (150 s at most, fleet/client.py) to come back to it. No other proof ends it: several may be under way.
SLEEP_S = 180
COMMAND_LIMIT_S = 10.0
PROOF_KEPT_S = 3600.0
LOOK_LIMIT_S = 120.0  # into all workspaces; one that was not looked into by then counts as holding something


def prove(layout: Layout) -> Proof:
    account = pwd.getpwuid(os.getuid())
    home = os.environ.get("HOME") or account.pw_dir
    mount = _mount_of(layout.root)
    remove(os.path.join(layout.root, "login_env"))  # whoever proves a host may just have mended its profile
    return Proof(
        now=time.time(),
        user=account.pw_name,
        home=home,
        home_writable=os.access(home, os.W_OK),
        file_system=mount[1] if mount else None,
        mount_point=mount[0] if mount else None,
        locks=_locks_hold(layout.run),
        executes=_executes(layout.run),
        lingers=lingers() if os.path.isdir("/run/systemd/seats") else None,
        processes_left=_processes_left(),
    )


def _processes_left() -> Optional[int]:
    """How many processes and threads the account may still start; None where that is not limited or not told."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if limit == resource.RLIM_INFINITY or os.getuid() == 0 or not os.path.isdir("/proc/self"):
        return None
    used = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat("/proc/" + name).st_uid == os.getuid():
                used += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return max(0, limit - used)


def _mount_of(path: str) -> Optional[Tuple[str, str]]:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            return find_mount(file.read(), path)
    except OSError:
        return None


def find_mount(mountinfo: str, path: str) -> Optional[Tuple[str, str]]:
    """Mount point and file system of an absolute path, from proc_pid_mountinfo(5). The last of equals is on top."""
    best: Optional[Tuple[str, str]] = None
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if not dash or len(fields) < 5:
            continue
        point = _unescaped(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and (best is None or len(point) >= len(best[0])):
            best = point, right.split()[0]
    return best


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _locks_hold(directory: str) -> Optional[bool]:
    """Whether a second process is kept out by a lock of the kind that SQLite takes (fcntl, byte range)."""
    path = os.path.join(directory, f"proof-{os.getpid()}.lock")
    code = (
        "import fcntl,os,sys\n"
        "try: fcntl.lockf(os.open(sys.argv[1],os.O_RDWR),fcntl.LOCK_EX|fcntl.LOCK_NB)\n"
        "except OSError: sys.exit(3)\n"
    )
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        argv = [sys.executable, "-I", "-S", "-c", code, path]
        return subprocess.run(argv, stdin=subprocess.DEVNULL, timeout=COMMAND_LIMIT_S).returncode == 3
    except OSError:
        return False
    except subprocess.TimeoutExpired:
        return None
    finally:
        os.close(fd)
        os.unlink(path)


def _executes(directory: str) -> bool:
    path = os.path.join(directory, f"proof-{os.getpid()}")
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexit 7\n")
        return subprocess.run([path], stdin=subprocess.DEVNULL, timeout=COMMAND_LIMIT_S).returncode == 7
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        if os.path.exists(path):
            os.unlink(path)


# --- does it outlive the session ------------------------------------------------------------------------------------


def start_sleeper() -> Sleeper:
    """Detached in the way of a supervisor, and waited for until it is where it belongs."""
    code = f"import os,time;os.write(1,b'.');time.sleep({SLEEP_S})"
    ours, its = os.pipe()
    try:
        child = spawn_detached([sys.executable, "-I", "-S", "-c", code], output=its)
        select.select([ours], [], [], COMMAND_LIMIT_S)
    finally:
        os.close(ours)
        os.close(its)
    return Sleeper(child.pid, start_time(child.pid), read_boot_id())


def end_sleeper(ask: Sleeper) -> Slept:
    state = judge_process(ask.pid, ask.start_time, ask.boot_id)
    if state == "alive":
        signal_process(ask.pid, ask.start_time, 9)
    return Slept(state)


# --- git both ways --------------------------------------------------------------------------------------------------


def _proof_mirror(layout: Layout, ask: ProofRef) -> str:
    if not ask.project_id.startswith("proof-"):
        raise ShunterError("PROTOCOL", f"not the mirror of a proof: {ask.project_id!r}")
    return layout.mirror(ask.project_id)


def publish_proof(layout: Layout, ask: ProofRef) -> None:
    """The base that was pushed becomes the result that can be fetched."""
    mirror = _proof_mirror(layout, ask)
    run_git(["update-ref", result_ref(ask.task_id), base_ref(ask.task_id)], git_dir=mirror)


def remove_proof(layout: Layout, ask: ProofRef) -> None:
    mirror = _proof_mirror(layout, ask)
    checked_id(ask.task_id)
    remove_tree(mirror)
    lock = os.path.join(os.path.dirname(mirror), f".{os.path.basename(mirror)}.lock")
    if os.path.exists(lock):
        os.unlink(lock)


# --- former helpers, and all that there is ---------------------------------------------------------------------------


def tidy(layout: Layout, *, older_than_s: float, present: str) -> Tidied:
    """Remove helpers that no process runs from and that no session used for so long. `present`: the digest to keep."""
    removed, kept = [], []
    _remove_old_proofs(os.path.join(layout.root, "mirrors"))
    with hold_lock(os.path.join(layout.locks, "tidy")):
        in_use = _command_lines()
        for folder in ("lib", "bin"):
            for name in sorted(os.listdir(os.path.join(layout.root, folder))):
                path = os.path.join(layout.root, folder, name)
                digest = name[: -len(".pyz")].rpartition("-")[2] if name.endswith(".pyz") else name.partition(".")[0]
                if digest == present:
                    continue
                age_s = time.time() - os.lstat(path).st_mtime
                is_used = bool(digest) and any(digest.encode() in line for line in in_use)  # "": a copy cut short
                if age_s < older_than_s or is_used:
                    kept.append(path)
                elif folder == "lib":
                    remove_tree(path)
                    removed.append(path)
                else:
                    os.unlink(path)
                    removed.append(path)
    return Tidied(tuple(removed), tuple(kept))


def _remove_old_proofs(mirrors: str) -> None:
    """Of proofs that were broken off: their mirrors, and the locks beside them."""
    for name in os.listdir(mirrors):
        path = os.path.join(mirrors, name)
        is_proof = name.startswith(("proof-", ".proof-"))
        if is_proof and os.path.lexists(path) and time.time() - os.lstat(path).st_mtime > PROOF_KEPT_S:
            remove_tree(path)


def _command_lines() -> List[bytes]:
    """Of every process of this account, with base64 words decoded: that is how ssh hands over a helper's digest."""
    import base64

    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            if os.stat("/proc/" + name).st_uid != os.getuid():
                continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        for word in words:
            found.append(word)
            if len(word) >= 16:
                try:
                    found.append(base64.urlsafe_b64decode(word))
                except ValueError:
                    continue
    return found


def contents(layout: Layout, ledger: Ledger) -> Contents:
    size = 0
    for directory, folders, names in os.walk(layout.root):
        for name in (*folders, *names):
            try:
                size += os.lstat(os.path.join(directory, name)).st_blocks * 512
            except OSError:
                continue
    there = (name for name in os.listdir(os.path.join(layout.root, "tasks")) if not name.startswith("."))
    tasks = {*there, *ledger.open_tasks()}
    give_up_at = time.monotonic() + LOOK_LIMIT_S
    return Contents(
        data_root=layout.root,
        bytes=size,
        tasks=tuple(_held(layout, ledger, task_id, give_up_at) for task_id in sorted(tasks)),
        mirrors=tuple(sorted(n for n in os.listdir(os.path.join(layout.root, "mirrors")) if not n.startswith("."))),
        running=tuple(ledger.accepted_attempts()),
    )


def _held(layout: Layout, ledger: Ledger, task_id: str, give_up_at: float) -> HeldTask:
    attempts = ledger.attempts_of(task_id)
    try:
        published = last_published(attempts).publication
    except ShunterError:  # what cannot be read is nobody's to throw away unasked
        return HeldTask(task_id, None, loose=True)
    if published is None:
        return HeldTask(task_id, None, loose=bool(attempts) and os.path.isdir(layout.workspace(task_id)))
    left_s = give_up_at - time.monotonic()
    is_loose = left_s <= 0 or find_loose_work(layout, ledger, task_id, published, timeout_s=left_s) is not None
    return HeldTask(task_id, published.head_oid, loose=is_loose)
