"""One session of the helper: JSON-RPC over stdio, events pushed, gone with its session.

The main thread reads requests; each runs in a thread of its own with its own ledger connection, so a long checkout
does not hold up a question. One thread listens at the session's bell, where supervisors say that something changed, and
once a second looks whether a supervisor died. When stdin ends, what was begun is finished and the process goes; turns
need no session.
"""

from __future__ import annotations

import contextlib
import os
import platform
import select
import subprocess
import sys
import threading
import time
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Tuple

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
    Contents,
    Facts,
    FactsAsk,
    FollowAsk,
    Hello,
    Jobs,
    LastPublished,
    Lease,
    LeaseAsk,
    LeaseRef,
    LogAsk,
    LogChunk,
    MirrorAsk,
    MirrorReady,
    Nothing,
    OriginAsk,
    OriginProof,
    Pack,
    PackAsk,
    Proof,
    ProofRef,
    PushAsk,
    Pushed,
    Sleeper,
    Slept,
    TaskRef,
    Tidied,
    TidyAsk,
)
from ..wire.record import changed
from .bell import heard, open_bell, sweep_bells
from .closing import close_task, last_published
from .detached import spawn_detached
from .durable import disk_code, remove
from .ending import publish_again
from .environment import load_login_environment
from .facts import memory_available_mb, probe_facts, require_writable
from .identity import load_host_id, os_name, read_boot_id, unknown_attempts
from .jobs import accept_attempt, python_argv, reap_supervisors, start_supervisor
from .layout import Layout
from .ledger import LEASE_TTL_S, LOOK_AT_DISK, MAKE_ROOM, Ledger
from .logs import log_end, offset_since, read_chunk
from .mirror import ensure_mirror, pin_base
from .probes import agent_facts
from .purge import is_purged_now
from .recovery import needs_recovery
from .signals import read_exited
from .status import cancel_attempt, read_status, supervisor_state

FOLLOW_TICK_S = 0.05
WATCH_TICK_S = 1.0
TRY_AGAIN_S = 10.0  # what was started for an attempt and did not help is started again
REQUESTS = 64
IDLE_CONNECTIONS = 4
LONG_REQUESTS = 8  # of those, at work on git and files at one time; the others wait and hold up no question
LONG = ("mirror.prepare", "attempt.accept", "attempt.publish", "task.close", "result.pack")


class Host:
    """The methods of `wire.messages.METHODS`; one for each request at work, for the ledger's connection."""

    def __init__(self, layout: Layout, session: Session) -> None:
        self.layout = layout
        self.session = session
        # Made by a session that begins; one that goes on must not make anew what was purged meanwhile.
        self.ledger = Ledger(layout.ledger, create=not session.has_begun)
        session.has_begun = True

    def host_facts(self, ask: FactsAsk) -> Facts:
        require_writable(self.layout.root)
        running = tuple(self.ledger.accepted_attempts())
        # Agents run with the login shell's PATH, and a session of ssh has another one.
        path = load_login_environment(self.layout).get("PATH") if ask.programs else None
        agents = agent_facts(self.layout, fresh=ask.fresh) if ask.agents else None
        reserved = self.ledger.reserved()
        found = probe_facts(self.layout.root, reserved=reserved, running=running, programs=ask.programs, path=path)
        strays = self.unknown_attempts() if ask.agents else {}
        return changed(found, agents=agents, unknown_attempts={name: tuple(pids) for name, pids in strays.items()})

    def unknown_attempts(self) -> Dict[str, List[int]]:
        tasks_dir = os.path.join(self.layout.root, "tasks")
        return unknown_attempts(tasks_dir, lambda attempt_id: self.ledger.find(attempt_id) is not None)

    def host_prove(self, ask: Nothing) -> Proof:
        from .proof import prove

        return prove(self.layout)

    def host_tidy(self, ask: TidyAsk) -> Tidied:
        from .proof import tidy

        present = os.environ.get("SHUNTER_HELPER_DIGEST", "")
        return tidy(self.layout, older_than_s=ask.older_than_s, present=present)

    def host_contents(self, ask: Nothing) -> Contents:
        from .proof import contents

        return contents(self.layout, self.ledger)

    def proof_publish(self, ask: ProofRef) -> Nothing:
        from .proof import publish_proof

        publish_proof(self.layout, ask)
        return Nothing()

    def proof_remove(self, ask: ProofRef) -> Nothing:
        from .proof import remove_proof

        remove_proof(self.layout, ask)
        return Nothing()

    def proof_sleep(self, ask: Nothing) -> Sleeper:
        from .proof import start_sleeper

        return start_sleeper()

    def proof_end(self, ask: Sleeper) -> Slept:
        from .proof import end_sleeper

        return end_sleeper(ask)

    def job_known(self, ask: Jobs) -> Jobs:
        return Jobs(tuple(each for each in ask.ids if self.ledger.accepted_as(each)))

    def lease_grant(self, ask: LeaseAsk) -> Lease:
        if not ask.job_id.endswith("-1"):  # nobody can be at work in the workspace of a first turn
            for attempt_id, pids in self.unknown_attempts().items():
                if attempt_id.startswith(ask.task_id + "-"):
                    words = f"attempt {attempt_id} of this task still runs there, unknown to the ledger"
                    return Lease(None, f"{words} (processes {', '.join(map(str, pids))})", LEASE_TTL_S)
        accepted_as = self.ledger.accepted_as(ask.job_id)
        if accepted_as not in (None, ask.attempt_id):
            return Lease(None, None, LEASE_TTL_S, accepted_as)
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
        has_base = pin_base(path, ask.task_id, ask.base_oid)
        if not has_base and ask.origin_url is not None:
            from .origin import fetch_base

            fetch_base(self.layout, path, task_id=ask.task_id, oid=ask.base_oid, url=ask.origin_url)
            return MirrorReady(path, has_base=True, fetched=True)
        return MirrorReady(path, has_base)

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
        fits = ask.offset >= 0 and 0 < ask.limit <= 262144 and (ask.ago_s is None or ask.ago_s >= 0)
        if ask.stream not in ("stdout", "stderr") or not fits:
            raise ShunterError("PROTOCOL", "log.read: stream is stdout or stderr, offset from 0, limit up to 256 KiB")
        path = os.path.join(self.layout.job(ask.attempt_id), ask.stream)
        row = self.ledger.find(ask.attempt_id)
        if row is None or row["state"] == "tombstoned":
            return LogChunk(ask.offset, "", 0, ask.offset, True)
        spec = self.ledger.load_spec(ask.attempt_id)
        exited = read_exited(self.layout, ask.attempt_id, spec.nonce)
        total: Optional[int] = None
        if exited is not None:
            total = exited.stdout_bytes if ask.stream == "stdout" else exited.stderr_bytes
        elif row["state"] == "ended":
            total = log_end(path)
        offset = ask.offset
        if ask.ago_s is not None:
            offset = max(offset, offset_since(path, time.time() - ask.ago_s))
        return read_chunk(path, offset, ask.limit, total=total)

    def log_follow(self, ask: FollowAsk) -> Nothing:
        if ask.stream not in ("stdout", "stderr"):
            raise ShunterError("PROTOCOL", "log.follow: stream is stdout or stderr")
        self.session.follow(os.path.join(self.layout.job(ask.attempt_id), ask.stream), ask.attempt_id, ask.stream)
        return Nothing()

    def task_published(self, ask: TaskRef) -> LastPublished:
        return last_published(self.ledger.attempts_of(ask.task_id))

    def task_close(self, ask: CloseAsk) -> Closed:
        return close_task(self.layout, self.ledger, ask)

    def result_pack(self, ask: PackAsk) -> Pack:
        from .pack import pack_result

        return pack_result(self.layout.mirror(ask.project_id), ask)

    def origin_push(self, ask: PushAsk) -> Pushed:
        from .outbox import carry_out

        return carry_out(self.layout, self.ledger, ask)

    def origin_prove(self, ask: OriginAsk) -> OriginProof:
        from .originproof import prove_origin

        return prove_origin(self.layout, ask)


class Session:
    def __init__(self, layout: Layout, nonce: str, source: BinaryIO, sink: BinaryIO) -> None:
        self.layout, self.nonce, self.source, self.sink = layout, nonce, source, sink
        self.writing = threading.Lock()
        self.idle: List[Host] = []
        self.has_begun = False
        self.room = threading.BoundedSemaphore(REQUESTS)
        self.long = threading.BoundedSemaphore(LONG_REQUESTS)
        self.followed: Dict[str, Tuple[str, str, int]] = {}
        self.recovering: Dict[str, subprocess.Popen[bytes]] = {}
        self.tried_at: Dict[str, float] = {}

    def run(self) -> None:
        hello = rpc.hello_line(self.nonce, greeting(self.layout))
        with self.writing:  # nothing is told before the greeting
            try:
                threading.Thread(target=self.watch, daemon=True).start()
            except RuntimeError as exc:
                raise no_more_processes() from exc
            with contextlib.suppress(OSError):  # stdin's end follows
                self.sink.write(hello)
                self.sink.flush()
        workers: List[threading.Thread] = []
        while True:
            line = self.source.readline(rpc.MESSAGE_LIMIT + 1)
            if len(line) > rpc.MESSAGE_LIMIT:
                self.send(rpc.failure(None, ShunterError("PROTOCOL", "a message is over the limit of 1 MiB")))
                break
            if not line.endswith(b"\n"):
                break
            self.room.acquire()
            worker = threading.Thread(target=self.handle, args=(line,))
            try:
                worker.start()
            except RuntimeError:  # the account may have no further thread: one after the other, then
                self.handle(line)
                continue
            workers = [each for each in workers if each.is_alive()] + [worker]
        for worker in workers:
            worker.join(timeout=60)
        remove(self.layout.bell(os.getpid()))
        for host in iter(self._idle_host, None):
            host.ledger.close()  # the last one of the host folds SQLite's side files in

    def handle(self, line: bytes) -> None:
        number = None
        try:
            message = rpc.parse(line)
            number = message.id
            if number is None or message.method not in METHODS:
                raise ShunterError("PROTOCOL", f"no method {message.method!r}, or no id")
            if message.method in LONG:
                with self.long:
                    reply = self.answer_to(message.method, message.params)
            else:
                reply = self.answer_to(message.method, message.params)
            self.send(rpc.answer(number, reply))
        except ShunterError as exc:
            self.send(rpc.failure(number, exc))
        except Exception as exc:
            self.send(rpc.failure(number, fault_of(exc)))
        finally:
            self.room.release()

    def answer_to(self, method: str, params: Any) -> Any:
        ask = rpc.decoded(METHODS[method][0], params, method)
        with self.a_host() as host:
            return getattr(host, method.replace(".", "_"))(ask)

    @contextlib.contextmanager
    def a_host(self) -> Iterator[Host]:
        """One is always left open for the next request, so most find their connection made."""
        host = self._idle_host() or Host(self.layout, self)
        if not host.ledger.is_current():
            host.ledger.close()
            host = Host(self.layout, self)
        try:
            yield host
        finally:
            if host.ledger.db.in_transaction or len(self.idle) >= IDLE_CONNECTIONS:
                host.ledger.close()
            else:
                self.idle.append(host)

    def _idle_host(self) -> Optional[Host]:
        """Another thread may take the last one between a look and the taking."""
        try:
            return self.idle.pop()
        except IndexError:
            return None

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
        poll = select.poll()
        bell = -1
        sweep_bells(self.layout.run)
        try:
            bell = open_bell(self.layout.bell(os.getpid()))
            poll.register(bell, select.POLLIN)
        except OSError as exc:
            sys.stderr.write(f"shunter-host: no bell, so home has to ask: {exc}\n")
        checked_at = 0.0
        while True:
            tick_s = FOLLOW_TICK_S if self.followed else WATCH_TICK_S
            if poll.poll(int(tick_s * 1000)):
                for word in sorted(heard(bell)):
                    self.send(rpc.notification("attempt.changed", {"attempt_id": word}))
            self.tell_growth()
            if time.monotonic() - checked_at >= WATCH_TICK_S:
                checked_at = time.monotonic()
                self.look_after_supervisors()

    def tell_growth(self) -> None:
        for path, (attempt_id, stream, size) in list(self.followed.items()):
            is_over = os.path.exists(self.layout.signal(attempt_id, "exited"))  # asked first: then nothing grows
            now = log_end(path)
            if now != size:
                self.followed[path] = (attempt_id, stream, now)
                self.send(rpc.notification("log.grew", {"attempt_id": attempt_id, "stream": stream, "size": now}))
            if is_over:
                del self.followed[path]

    def look_after_supervisors(self) -> None:
        """Start what was accepted and never started; recover what lost its supervisor (both harmless to repeat)."""
        reap_supervisors()
        self.recovering = {key: child for key, child in self.recovering.items() if child.poll() is None}
        try:
            with self.a_host() as host:
                waiting = host.ledger.accepted_attempts()
            self.layout.mend()
        except (ShunterError, OSError):
            return
        for attempt_id in waiting:
            try:
                self.look_after(attempt_id)
            except Exception as exc:  # one attempt's trouble is not another's
                sys.stderr.write(f"shunter-host: {attempt_id}: {exc}\n")

    def look_after(self, attempt_id: str) -> None:
        if attempt_id in self.recovering or time.monotonic() < self.tried_at.get(attempt_id, 0.0) + TRY_AGAIN_S:
            return
        if supervisor_state(self.layout, attempt_id) == "starting":
            self.tried_at[attempt_id] = time.monotonic()
            start_supervisor(self.layout, attempt_id)
        elif needs_recovery(self.layout, attempt_id):
            self.tried_at[attempt_id] = time.monotonic()
            self.recovering[attempt_id] = self.start_recovery(attempt_id)

    def start_recovery(self, attempt_id: str) -> subprocess.Popen[bytes]:
        """A process of its own, so that it survives the session."""
        log = os.path.join(self.layout.job(attempt_id), "supervisor.log")
        try:
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        except OSError:  # the job's directory is gone, or an agent put something else there
            fd = os.open(os.devnull, os.O_WRONLY)
        with open(fd, "ab") as file:
            return spawn_detached(python_argv("recovery", self.layout.root, attempt_id), output=file)


def no_more_processes() -> ShunterError:
    text = "the account may not start another process or thread"
    return ShunterError("HOST_INCAPABLE", text, hint="end what it runs there, or raise its nproc limit (ulimit -u)")


def fault_of(exc: Exception) -> ShunterError:
    if isinstance(exc, BlockingIOError) and exc.filename is None:
        return no_more_processes()  # EAGAIN of fork(2); nothing here reads without waiting
    if isinstance(exc, OSError):
        return file_error(exc, "IO")
    return ShunterError("INTERNAL", f"{type(exc).__name__}: {exc}")


def file_error(exc: OSError, otherwise: str) -> ShunterError:
    code = disk_code(exc, otherwise)
    hint = {"DISK_FULL": MAKE_ROOM, "DISK_UNUSABLE": LOOK_AT_DISK}.get(code)
    return ShunterError(code, f"{exc.filename or 'host'}: {exc.strerror}", hint=hint)


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
    except BlockingIOError as exc:
        raise no_more_processes() from exc
    except (OSError, subprocess.TimeoutExpired):
        return ""


def make_layout(data_root: str) -> Layout:
    """Makes the data root when it is missing."""
    layout = Layout(data_root)
    if is_purged_now(layout.root):
        text = f"{layout.root} is being removed"
        raise ShunterError("DATA_ROOT_MISSING", text, hint="wait until that is over, then set the host up")
    try:
        layout.make()
    except OSError as exc:
        raise file_error(exc, "LEDGER_UNAVAILABLE") from exc
    return layout


def open_session(layout: Layout, nonce: str) -> Session:
    """Raises what keeps the ledger from opening before the greeting."""
    with contextlib.suppress(OSError):  # what was used lately is spared by `tidy`
        os.utime(os.path.join(layout.root, "lib", os.environ.get("SHUNTER_HELPER_DIGEST", "")))
    session = Session(layout, nonce, sys.stdin.buffer, sys.stdout.buffer)
    with session.a_host():
        return session
