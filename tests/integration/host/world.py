"""A host of the test's own: data root, helper, client and a git repository to work on.

`SHUNTER_TEST_HELPER_PYTHON` names the interpreter that the helper runs under; the default is the one of the tests.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from shunter.fleet.client import HostClient
from shunter.fleet.transport import LocalTransport
from shunter.host.layout import Layout
from shunter.wire.errors import ShunterError
from shunter.wire.ids import new_attempt_id, new_nonce, new_task_id, turn_id
from shunter.wire.messages import (
    AcceptAsk,
    AttemptRef,
    AttemptStatus,
    CancelAsk,
    JobSpec,
    Lease,
    LeaseAsk,
    Limits,
    LogAsk,
    LogChunk,
    MirrorAsk,
    MirrorReady,
)

HELPER_PYTHON = os.environ.get("SHUNTER_TEST_HELPER_PYTHON") or str(Path(sys.executable).resolve())
LIMITS = Limits(term_grace_s=1.0, background_grace_s=0.3, quiet_s=0.2, output_cap_bytes=1 << 20, tail_bytes=65536)
PATIENCE_S = 60.0
T = TypeVar("T")


def until(found: Callable[[], T | None], *, what: str, patience_s: float = PATIENCE_S) -> T:
    """Poll until there is something that is neither None nor false."""
    give_up = time.monotonic() + patience_s
    while True:
        value = found()
        if value:
            return value
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.01)


def git(where: Path | str, *args: str) -> str:
    done = subprocess.run(["git", "-C", str(where), *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def a_repository(path: Path) -> str:
    """A repository with one commit; its id."""
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main")
    (path / "readme.txt").write_text("hello\n")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "-m", "first")
    return git(path, "rev-parse", "HEAD")


# --- processes ------------------------------------------------------------------------------------------------------


def environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def children_of(parent: int) -> list[int]:
    found = []
    for pid in all_pids():
        try:
            words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(words[1]) == parent and is_alive(pid):
            found.append(pid)
    return found


def is_alive(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def processes_of(attempt_id: str) -> list[int]:
    tag = b"SHUNTER_ATTEMPT=" + attempt_id.encode()
    return [pid for pid in all_pids() if tag in environment_of(pid) and is_alive(pid)]


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process that the test started."""
    if process.poll() is None:
        process.kill()
    process.wait(timeout=30)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


# --- the world ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt as home knows it: its job, the lease that it holds, and the prompt."""

    spec: JobSpec
    token: str
    prompt: str

    @property
    def id(self) -> str:
        return self.spec.attempt_id

    @property
    def ref(self) -> AttemptRef:
        return AttemptRef(self.spec.attempt_id, self.spec.job_id)


class World:
    """`run` takes a command through lease, base, acceptance and end, as a dispatcher does."""

    def __init__(self, root: Path, *, data_root: Path | None = None, python: str = HELPER_PYTHON) -> None:
        self.root = root
        self.data_root = data_root or root / "data"
        self.python = python
        self.repo = root / "repo"
        self.base_oid = a_repository(self.repo)
        self.layout = Layout(str(self.data_root))
        self.project_id = "p1"
        self.attempts: list[Attempt] = []
        self.clients: list[HostClient] = []
        self.notes: list[tuple[str | None, dict[str, Any]]] = []
        self.client = self.new_client()

    def new_client(self) -> HostClient:
        """A further session."""
        transport = LocalTransport("local", self.data_root, python=self.python)
        client = HostClient(transport, lambda method, params: self.notes.append((method, params)))
        self.clients.append(client)
        return client

    # --- steps of a job ---------------------------------------------------------------------------------------------

    def lease(self, attempt_id: str, job_id: str, task_id: str, *, slots: int = 100) -> Lease:
        ask = LeaseAsk(attempt_id, job_id, task_id, 1, 0, slots, None)
        lease: Lease = self.client.call("lease.grant", ask)
        return lease

    def prepare(
        self, *argv: str, prompt: str = "", limits: Limits = LIMITS, task_id: str | None = None, **spec: Any
    ) -> Attempt:
        """Everything before the acceptance: a lease, and the base in the mirror."""
        task_id = task_id or new_task_id()
        job_id = turn_id(task_id, spec.get("number", 1))
        attempt_id = spec.pop("attempt_id", None) or new_attempt_id(job_id)
        lease = self.lease(attempt_id, job_id, task_id)
        assert lease.token is not None, lease.busy
        filled: dict[str, Any] = {
            "attempt_id": attempt_id,
            "job_id": job_id,
            "task_id": task_id,
            "project_id": self.project_id,
            "nonce": new_nonce(),
            "number": 1,
            "title": "a test",
            "base_oid": self.base_oid,
            "agent": "exec",
            "argv": argv,
            "env": {},
            "files": {},
            "wants_schema": False,
            "session_marker": None,
            "session_key": None,
            "session_id": None,
            "permission": "unattended",
            "identity_name": "Una",
            "identity_email": "una@example.org",
            "timeout_s": 0.0,
            "limits": limits,
            **spec,
        }
        attempt = Attempt(JobSpec(**filled), lease.token, prompt)
        self.ship(attempt)
        self.attempts.append(attempt)
        return attempt

    def ship(self, attempt: Attempt) -> None:
        spec = attempt.spec
        ask = MirrorAsk(spec.attempt_id, attempt.token, spec.task_id, spec.project_id, "sha1", spec.base_oid)
        ready: MirrorReady = self.client.call("mirror.prepare", ask)
        if not ready.has_base:
            transport = self.client.transport
            program = transport.pack_command("receive-pack", "--attempt", attempt.id, "--token", attempt.token)
            url = transport.mirror_url(ready.path)
            ref = f"{spec.base_oid}:refs/shunter/bases/{spec.task_id}"
            git(self.repo, "push", "--quiet", f"--receive-pack={program}", url, ref)

    def accept(self, attempt: Attempt, client: HostClient | None = None) -> AttemptStatus:
        ask = AcceptAsk(attempt.token, attempt.spec, attempt.prompt)
        status: AttemptStatus = (client or self.client).call("attempt.accept", ask)
        return status

    def start(self, *argv: str, **options: Any) -> Attempt:
        """Up to and with the acceptance."""
        attempt = self.prepare(*argv, **options)
        self.accept(attempt)
        return attempt

    def run(self, *argv: str, **options: Any) -> tuple[Attempt, AttemptStatus]:
        attempt = self.start(*argv, **options)
        return attempt, self.wait(attempt)

    # --- questions --------------------------------------------------------------------------------------------------

    def status(self, attempt: Attempt) -> AttemptStatus:
        status: AttemptStatus = self.client.call("attempt.status", attempt.ref)
        return status

    def wait(self, attempt: Attempt, *states: str, patience_s: float = PATIENCE_S) -> AttemptStatus:
        """Until it is in one of the states (ended when none is given)."""

        def reached() -> AttemptStatus | None:
            status = self.status(attempt)
            return status if status.state in (states or ("ended",)) else None

        return until(reached, what=f"{attempt.id} {states or 'ended'}", patience_s=patience_s)

    def cancel(self, attempt: Attempt) -> AttemptStatus:
        status: AttemptStatus = self.client.call("attempt.cancel", CancelAsk(attempt.id, "tester"))
        return status

    def tombstone(self, attempt: Attempt) -> AttemptStatus:
        status: AttemptStatus = self.client.call("attempt.tombstone", attempt.ref)
        return status

    def read_chunk(self, attempt: Attempt, stream: str, offset: int, limit: int = 65536) -> LogChunk:
        chunk: LogChunk = self.client.call("log.read", LogAsk(attempt.id, stream, offset, limit))
        return chunk

    def read_log(self, attempt: Attempt, stream: str = "stdout") -> tuple[bytes, list[tuple[int, int]]]:
        """All that can be read of an ended attempt, and each gap as (offset of the bytes after it, length)."""
        data, gaps, offset = b"", [], 0
        while True:
            chunk = self.read_chunk(attempt, stream, offset)
            if chunk.gap_bytes:
                gaps.append((chunk.offset, chunk.gap_bytes))
            data += base64.b64decode(chunk.data)
            assert chunk.next_offset > offset or chunk.ended
            offset = chunk.next_offset
            if chunk.ended:
                return data, gaps

    def supervisor(self, attempt: Attempt) -> dict[str, Any]:
        """{pid, start_time, boot_id}, once it introduced itself."""
        path = Path(self.layout.job(attempt.id), "supervisor")
        return json.loads(until(lambda: path.exists() and path.read_bytes(), what="a supervisor"))

    def job(self, attempt: Attempt) -> Path:
        return Path(self.layout.job(attempt.id))

    def workspace(self, attempt: Attempt) -> Path:
        return Path(self.layout.workspace(attempt.spec.task_id))

    def slots_used(self) -> int:
        from shunter.wire.messages import FactsAsk

        return int(self.client.call("host.facts", FactsAsk()).slots_used)

    def published(self, attempt: Attempt, path: str) -> str:
        """A file's content in the branch that the mirror holds."""
        mirror = self.layout.mirror(self.project_id)
        return git(mirror, "show", f"task/{attempt.spec.task_id}:{path}")

    # --- the end ----------------------------------------------------------------------------------------------------

    def processes(self) -> list[int]:
        """Whatever runs for this world: what carries a tag of ours, and programs with our data root in their argv."""
        tags = {b"SHUNTER_ATTEMPT=" + each.id.encode() for each in self.attempts}
        found = []
        for pid in all_pids():
            if pid == os.getpid() or not is_alive(pid):
                continue
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(self.data_root) in words or tags & set(environment_of(pid)):
                found.append(pid)
        return found

    def close(self) -> None:
        """End the sessions and whatever still runs; everything here belongs to this world by data root or tag."""
        for client in self.clients:
            client.close()
        give_up = time.monotonic() + 10
        while self.processes() and time.monotonic() < give_up:
            for pid in self.processes():
                if time.monotonic() > give_up - 9.5:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
            time.sleep(0.02)
        shutil.rmtree(self.root, ignore_errors=True)


def code_of(function: Callable[[], Any]) -> ShunterError:
    """The error that a call must raise."""
    try:
        found = function()
    except ShunterError as exc:
        return exc
    raise AssertionError(f"no error but {found!r}")


def lines_of(path: Path) -> Iterator[str]:
    yield from path.read_text().splitlines() if path.exists() else ()
