"""Waking the dispatcher: a byte into its fifo, or a new process when nobody leads.

No wake-up is lost: a dispatcher resigns in a transaction that looks for open turns, so whoever adds a row and then
finds a leader knows that this leader will see the row.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import subprocess
import sys
import time
from pathlib import Path

from ..fleet.places import Places
from ..host.durable import is_full
from ..store.contract import Store
from ..wire.errors import ShunterError
from .leadership import is_dead, this_process

START_LIMIT_S = 10.0
READY = "ok"  # what a dispatcher says once somebody leads; anything else is why nobody does
# The dispatcher outlives the terminal that started it, so it takes along what finds files and keys, nothing else.
KEPT_NAMES = ("HOME", "PATH", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "SSH_AUTH_SOCK", "SHUNTER_CONFIG")
KEPT_PREFIXES = ("XDG_", "LC_")
# Lines that are written into the fifo: look at the queue; ask hosts that did not answer, too; this host answers.
LOOK, ASK_ALL, ANSWERS = b"\n", b"!\n", b"+%b\n"


def ensure_dispatcher(places: Places, store: Store, *, word: bytes = LOOK) -> None:
    """Make sure that somebody leads and looks at the queue. Raises NO_DISPATCHER; the rows are stored all the same."""
    leader = store.read_leader()
    if leader.owner is not None:
        dead = is_dead(leader.owner, here=this_process(places))
        if dead is False or (dead is None and time.time() < leader.renewed_at + leader.ttl_s):
            poke_dispatcher(places, word)
            return
    start_dispatcher(places)


def tell_answers(places: Places, host: str) -> None:
    """A dispatcher that leads asks this host again at once, however long it leaves it alone otherwise."""
    poke_dispatcher(places, ANSWERS % host.encode())


def poke_dispatcher(places: Places, word: bytes) -> None:
    with contextlib.suppress(OSError):
        fd = os.open(places.wake_fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, word)
        finally:
            os.close(fd)


def start_dispatcher(places: Places) -> None:
    """Detached: own session, no descriptor of ours. It says `ok` through a pipe once somebody leads."""
    told, tell = os.pipe()
    env = {name: value for name, value in os.environ.items() if name in KEPT_NAMES or name.startswith(KEPT_PREFIXES)}
    rotate(places.dispatcher_log)
    since = places.dispatcher_log.stat().st_size if places.dispatcher_log.exists() else 0
    try:
        with open(os.open(places.dispatcher_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as log:  # noqa: PTH123
            subprocess.Popen(
                [sys.executable, "-P", "-m", "shunter.dispatch.main", str(tell)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=env,
                pass_fds=(tell,),
                start_new_session=True,
            )
    except OSError as exc:
        os.close(told)
        os.close(tell)
        raise _no_dispatcher(places, str(exc)) from exc
    os.close(tell)
    try:
        ready, _, _ = select.select([told], [], [], START_LIMIT_S)
        word = os.read(told, 1024).decode("utf-8", "replace") if ready else "it did not come up in time"
        if word != READY:
            raise _no_dispatcher(places, word or last_line(places.dispatcher_log, since) or "it ended at once")
    finally:
        os.close(told)


def rotate(log: Path) -> None:
    """Keep the last mebibyte or two: a log that grew over one becomes `.1` before the next start."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > 1 << 20:
            log.replace(log.with_name(log.name + ".1"))


def _no_dispatcher(places: Places, why: str) -> ShunterError:
    hint = f"mend that, then `shunter reconcile`; more may stand in {places.dispatcher_log}"
    text = f"no dispatcher could be started: {why}; what is stored waits for one"
    return ShunterError("NO_DISPATCHER", text, hint=hint)


def open_wake_fifo(places: Places) -> int:
    """For the leader; read-write, so that it never sees an end of file."""
    path = places.wake_fifo
    try:
        os.mkfifo(path, 0o600)
    except FileExistsError:
        if not stat.S_ISFIFO(path.lstat().st_mode):
            raise ShunterError("IO", f"{path} is in the way: not a fifo") from None
    except OSError as exc:
        raise ShunterError("DISK_FULL" if is_full(exc) else "IO", f"{path}: {exc.strerror}") from exc
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def last_line(path: Path, since: int) -> str:
    """Of what was written from byte `since` on."""
    try:
        with path.open("rb") as file:
            file.seek(max(since, path.stat().st_size - 2048))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""
