"""One session of the helper: JSON-RPC over stdio, events pushed, gone with its session.

The main thread reads requests; each runs in a thread of its own with its own ledger connection, so a long checkout
does not hold up a question. One thread listens at `run/<pid>.fifo`, where supervisors say that something changed, and
once a second looks whether a supervisor died. When stdin ends, what was begun is finished and the process goes; turns
need no session.
"""

from __future__ import annotations

import os
import platform
import select
import subprocess
import sys
import threading
import time
from typing import Any, BinaryIO, Dict, List, Optional, Set, Tuple

from .. import __version__
from ..wire import rpc
from ..wire.errors import ShunterError
from ..wire.messages import (
    METHODS,
    AcceptAsk,
    AttemptRef,
    AttemptStatus,
    CancelAsk,
    CloseAsk,
    Closed,
    Facts,
    FactsAsk,
    FollowAsk,
    Hello,
    Lease,
    LeaseAsk,
    LeaseRef,
    LogAsk,
    LogChunk,
    MirrorAsk,
    MirrorReady,
    Nothing,
)
from .ending import publish_again
from .facts import memory_available_mb, probe_facts
from .identity import load_host_id, os_name, read_boot_id
from .jobs import (
    accept_attempt,
    cancel_attempt,
    close_task,
    python_argv,
    read_status,
    reap_supervisors,
    start_supervisor,
    supervisor_state,
)
from .layout import Layout
from .ledger import LEASE_TTL_S, Ledger
from .logs import read_ended, read_extent, read_running
from .mirror import ensure_mirror, pin_base
from .recovery import needs_recovery
from .signals import read_exited

FOLLOW_TICK_S = 0.05
WATCH_TICK_S = 1.0


class Host:
    """The methods of `wire.messages.METHODS`; a new one per thread, for the ledger's connection."""

    def __init__(self, layout: Layout, session: Session) -> None:
        self.layout = layout
        self.session = session
        self.ledger = Ledger(layout.ledger)

    def host_facts(self, ask: FactsAsk) -> Facts:
        running = tuple(self.ledger.accepted_attempts())
        return probe_facts(self.layout.root, reserved=self.ledger.reserved(), running=running, programs=ask.programs)

    def lease_grant(self, ask: LeaseAsk) -> Lease:
        token, busy = self.ledger.grant_lease(ask, available_memory_mb=memory_available_mb())
        return Lease(token, busy, LEASE_TTL_S)

    def lease_renew(self, ask: LeaseRef) -> Lease:
        self.ledger.renew_lease(ask.attempt_id, ask.token)
        return Lease(ask.token, None, LEASE_TTL_S)

    def lease_release(self, ask: LeaseRef) -> Nothing:
        self.ledger.release_unused_lease(ask.attempt_id, ask.token)
        return Nothing()

    def mirror_prepare(self, ask: MirrorAsk) -> MirrorReady:
        self.ledger.check_lease(ask.attempt_id, ask.token)
        path = self.layout.mirror(ask.project_id)
        ensure_mirror(path, ask.object_format)
        return MirrorReady(path, pin_base(path, ask.task_id, ask.base_oid))

    def attempt_accept(self, ask: AcceptAsk) -> AttemptStatus:
        return accept_attempt(self.layout, self.ledger, ask)

    def attempt_status(self, ask: AttemptRef) -> AttemptStatus:
        return read_status(self.layout, self.ledger, ask.attempt_id)

    def attempt_tombstone(self, ask: AttemptRef) -> AttemptStatus:
        self.ledger.tombstone(ask.attempt_id, ask.job_id)
        return read_status(self.layout, self.ledger, ask.attempt_id)

    def attempt_cancel(self, ask: CancelAsk) -> AttemptStatus:
        return cancel_attempt(self.layout, self.ledger, ask.attempt_id, ask.actor)

    def attempt_publish(self, ask: AttemptRef) -> AttemptStatus:
        publish_again(self.layout, self.ledger, ask.attempt_id)
        return read_status(self.layout, self.ledger, ask.attempt_id)

    def log_read(self, ask: LogAsk) -> LogChunk:
        if ask.stream not in ("stdout", "stderr") or ask.offset < 0 or not 0 < ask.limit <= 262144:
            raise ShunterError("PROTOCOL", "log.read: stream is stdout or stderr, offset from 0, limit up to 256 KiB")
        path = os.path.join(self.layout.job(ask.attempt_id), ask.stream)
        row = self.ledger.find(ask.attempt_id)
        if row is None or row["state"] == "tombstoned":
            return LogChunk(ask.offset, "", 0, ask.offset, True)
        spec = self.ledger.load_spec(ask.attempt_id)
        exited = read_exited(self.layout, ask.attempt_id, spec.nonce)
        if exited is None and row["state"] != "ended":
            return read_running(path, ask.offset, ask.limit)
        if exited is not None:
            total = exited.stdout_bytes if ask.stream == "stdout" else exited.stderr_bytes
            kept = exited.stdout_kept if ask.stream == "stdout" else exited.stderr_kept
        else:
            total = kept = os.path.getsize(path) if os.path.exists(path) else 0
        return read_ended(path, read_extent(path, total=total, kept=kept), ask.offset, ask.limit)

    def log_follow(self, ask: FollowAsk) -> Nothing:
        self.session.follow(os.path.join(self.layout.job(ask.attempt_id), ask.stream), ask.attempt_id, ask.stream)
        return Nothing()

    def task_close(self, ask: CloseAsk) -> Closed:
        return close_task(self.layout, self.ledger, ask)


class Session:
    def __init__(self, layout: Layout, nonce: str, source: BinaryIO, sink: BinaryIO) -> None:
        self.layout, self.nonce, self.source, self.sink = layout, nonce, source, sink
        self.writing = threading.Lock()
        self.local = threading.local()
        self.slots = threading.BoundedSemaphore(8)  # requests at work at one time
        self.followed: Dict[str, Tuple[str, str, int]] = {}
        self.recovering: Dict[str, subprocess.Popen[bytes]] = {}
        self.restarted: Set[str] = set()

    def run(self) -> None:
        self.send(rpc.hello_line(self.nonce, greeting(self.layout)))
        threading.Thread(target=self.watch, daemon=True).start()
        workers: List[threading.Thread] = []
        while True:
            line = self.source.readline(rpc.MESSAGE_LIMIT + 1)
            if not line.endswith(b"\n"):
                break  # the end of the session, or a message over the limit: both end it
            worker = threading.Thread(target=self.handle, args=(line,))
            worker.start()
            workers = [each for each in workers if each.is_alive()] + [worker]
        for worker in workers:
            worker.join(timeout=60)

    def handle(self, line: bytes) -> None:
        number = None
        with self.slots:
            try:
                message = rpc.parse(line)
                number = message.id
                if message.method not in METHODS:
                    raise ShunterError("PROTOCOL", f"no method {message.method!r}")
                takes, _ = METHODS[message.method]
                host = Host(self.layout, self)
                try:
                    ask = rpc.decoded(takes, message.params, message.method)
                    reply = getattr(host, message.method.replace(".", "_"))(ask)
                finally:
                    host.ledger.close()
                self.send(rpc.answer(number or 0, reply))
            except ShunterError as exc:
                self.send(rpc.failure(number, exc))
            except Exception as exc:
                self.send(rpc.failure(number, fault_of(exc)))

    def send(self, data: bytes) -> None:
        with self.writing:
            try:
                self.sink.write(data)
                self.sink.flush()
            except (OSError, ValueError):
                pass  # nobody listens any more; stdin's end follows

    def follow(self, path: str, attempt_id: str, stream: str) -> None:
        self.followed[path] = (attempt_id, stream, -1)

    # --- what happens by itself -------------------------------------------------------------------------------------

    def watch(self) -> None:
        path = os.path.join(self.layout.run, f"{os.getpid()}.fifo")
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        os.mkfifo(path, 0o600)
        fifo = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # read-write: no end of file between writers
        poll = select.poll()
        poll.register(fifo, select.POLLIN)
        checked_at = 0.0
        try:
            while True:
                tick_s = FOLLOW_TICK_S if self.followed else WATCH_TICK_S
                if poll.poll(int(tick_s * 1000)):
                    for word in sorted(set(os.read(fifo, 65536).decode("ascii", "replace").split())):
                        self.send(rpc.notification("attempt.changed", {"attempt_id": word}))
                self.tell_growth()
                if time.monotonic() - checked_at >= WATCH_TICK_S:
                    checked_at = time.monotonic()
                    self.look_after_supervisors()
        finally:
            os.close(fifo)

    def tell_growth(self) -> None:
        for path, (attempt_id, stream, size) in list(self.followed.items()):
            try:
                now = os.stat(path).st_size
            except FileNotFoundError:
                continue
            if now != size:
                self.followed[path] = (attempt_id, stream, now)
                self.send(rpc.notification("log.grew", {"attempt_id": attempt_id, "stream": stream, "size": now}))

    def look_after_supervisors(self) -> None:
        """Start what was accepted and never started; recover what lost its supervisor (both harmless to repeat)."""
        reap_supervisors()
        self.recovering = {key: child for key, child in self.recovering.items() if child.poll() is None}
        try:
            ledger = Ledger(self.layout.ledger)
        except ShunterError:
            return
        try:
            for attempt_id in ledger.accepted_attempts():
                if supervisor_state(self.layout, attempt_id) == "starting" and attempt_id not in self.restarted:
                    self.restarted.add(attempt_id)
                    start_supervisor(self.layout, attempt_id)
                elif attempt_id not in self.recovering and needs_recovery(self.layout, attempt_id):
                    self.recovering[attempt_id] = self.start_recovery(attempt_id)
        except Exception as exc:
            sys.stderr.write(f"shunter-host: {exc}\n")
        finally:
            ledger.close()

    def start_recovery(self, attempt_id: str) -> subprocess.Popen[bytes]:
        with open(os.path.join(self.layout.job(attempt_id), "supervisor.log"), "ab") as log:
            return subprocess.Popen(
                python_argv("recovery", self.layout.root, attempt_id),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
            )


def fault_of(exc: Exception) -> ShunterError:
    if isinstance(exc, OSError):
        code = "DISK_FULL" if exc.errno in (28, 122) else "IO"
        return ShunterError(code, f"{exc.filename or 'host'}: {exc.strerror}")
    return ShunterError("INTERNAL", f"{type(exc).__name__}: {exc}")


def greeting(layout: Layout) -> Hello:
    return Hello(
        version=__version__,
        digest=os.environ.get("SHUNTER_HELPER_DIGEST", ""),
        host_id=load_host_id(layout.root),
        os=os_name(),
        boot_id=read_boot_id(),
        python=platform.python_version(),
        git=git_version(),
        data_root=layout.root,
        pid=os.getpid(),
    )


def git_version() -> str:
    try:
        done = subprocess.run(["git", "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=20)
        return done.stdout.decode("utf-8", "replace").split("version", 1)[-1].strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def open_session(data_root: str, nonce: str, source: Optional[Any] = None, sink: Optional[Any] = None) -> Session:
    """Makes the data root when it is missing; raises what keeps the ledger from opening before the greeting."""
    layout = Layout(data_root)
    try:
        layout.make()
    except OSError as exc:
        raise ShunterError("LEDGER_UNAVAILABLE", f"{exc.filename}: {exc.strerror}") from exc
    Ledger(layout.ledger).close()
    return Session(layout, nonce, source or sys.stdin.buffer, sink or sys.stdout.buffer)
