"""A host's own database: leases, attempts, tombstones, an audit trail. The authority for what runs here.

SQLite with WAL and synchronous=FULL; every write transaction is BEGIN IMMEDIATE; no RETURNING (SQLite 3.34 must do).
The schema states the rules too: one unused or accepted attempt a job, one row an attempt.

Leases that nobody uses expire by CLOCK_BOOTTIME of the boot that granted them, so a moved wall clock frees nothing.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..wire.codec import dumps, loads
from ..wire.errors import ShunterError
from ..wire.ids import new_nonce
from ..wire.messages import End, JobSpec, LeaseAsk
from ..wire.record import changed
from .admission import decide_admission
from .identity import read_boot_id

APPLICATION_ID = 0x53484C47  # "SHLG"
VERSION = 2
LEASE_TTL_S = 60.0

SCHEMA = """
CREATE TABLE lease (
    attempt_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    token TEXT NOT NULL,
    slots INTEGER NOT NULL CHECK (slots >= 0),
    memory_mb INTEGER NOT NULL CHECK (memory_mb >= 0),
    used INTEGER NOT NULL DEFAULT 0 CHECK (used IN (0, 1)),
    boot_id TEXT NOT NULL,
    expires_boottime_s REAL NOT NULL
);
CREATE TABLE attempt (
    attempt_id TEXT PRIMARY KEY,
    job_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('accepted', 'ended', 'tombstoned')),
    spec TEXT,
    base_oid TEXT,
    accepted_at REAL,
    ended_at REAL,
    end TEXT,
    notices TEXT NOT NULL DEFAULT '[]',
    CHECK (state = 'tombstoned' OR spec IS NOT NULL),
    CHECK ((state = 'ended') = (end IS NOT NULL))
);
-- At most one launch a job: a second attempt is admitted only when every earlier one is tombstoned.
CREATE UNIQUE INDEX one_accepted_attempt_a_job ON attempt (job_id) WHERE state <> 'tombstoned';
CREATE INDEX attempt_running ON attempt (attempt_id) WHERE state = 'accepted';
CREATE TABLE task (
    task_id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    base_oid TEXT NOT NULL,
    closed_at REAL
);
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY,
    at REAL NOT NULL,
    actor TEXT NOT NULL,
    what TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail TEXT NOT NULL
);
"""

# What a version adds to the one before it; a new ledger goes through all of them.
UPGRADES = {
    2: """
-- Results that go to an origin besides home: one entry a task, its last turn's head is what is wanted there.
CREATE TABLE outbox (
    task_id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    base_oid TEXT NOT NULL,
    url TEXT NOT NULL,
    branch TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'pushed', 'failed', 'refused', 'dropped')),
    wanted_oid TEXT NOT NULL,
    trying_oid TEXT,
    pushed_oid TEXT,
    tries INTEGER NOT NULL DEFAULT 0,
    error_code TEXT,
    error_text TEXT,
    hint TEXT,
    CHECK (state <> 'pushed' OR pushed_oid = wanted_oid)
);
"""
}

MAKE_ROOM = "make room on the host"
LOOK_AT_DISK = (
    "`dmesg` and `mount` on the host say why; once its disk can be written again, everything goes on by itself"
)
RESTORE = "put the ledger back, or wait until no agent runs there and move the whole data root aside"


def boottime_s() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


@contextlib.contextmanager
def sqlite_errors(path: str) -> Iterator[None]:
    """Foreign errors end here: damaged, full, read-only and unreachable are told apart."""
    try:
        yield
    except sqlite3.Error as exc:
        text = str(exc)
        if "full" in text or ("disk I/O error" in text and _has_no_room(path)):
            raise ShunterError("DISK_FULL", f"{path}: {text}", hint=MAKE_ROOM) from exc
        if "disk I/O error" in text or _is_read_only(path):
            raise ShunterError("DISK_UNUSABLE", f"{path}: {text}", hint=LOOK_AT_DISK) from exc
        if "malformed" in text or "not a database" in text:
            raise ShunterError("LEDGER_DAMAGED", f"{path}: {text}", hint=RESTORE) from exc
        raise ShunterError("LEDGER_UNAVAILABLE", f"{path}: {text}") from exc


def _has_no_room(path: str) -> bool:
    """SQLite tells a full disk as an I/O error when it cannot make its shared memory file."""
    try:
        found = os.statvfs(os.path.dirname(path))
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < 65536


def _is_read_only(path: str) -> bool:
    """The file system, and not this file for want of rights."""
    try:
        return bool(os.statvfs(os.path.dirname(path)).f_flag & os.ST_RDONLY)
    except OSError:
        return False


class Ledger:
    """One connection, for one thread at a time. While one is open, others open without writing anything."""

    def __init__(self, path: str, *, create: bool = True) -> None:
        """`create`: make it where there is none, and no trace of one."""
        self.path = path
        self.inode = -1
        self._connect(create=create)

    def reopen(self) -> None:
        """For a file that another took the place of, or that could only be read when this connection was made."""
        self.close()
        self.distrust()
        self._connect(create=False)

    def distrust(self) -> None:
        """Have `is_current` say no until the next `reopen`."""
        self.inode = -1

    def _connect(self, *, create: bool) -> None:
        if not self._stands():  # to connect would make a file
            if self._has_jobs():
                text = f"{self.path}: missing or empty, but there are attempts in jobs/ beside it"
                raise ShunterError("LEDGER_DAMAGED", text, hint=RESTORE)
            if not create and not os.path.exists(self.path):
                raise ShunterError("LEDGER_UNAVAILABLE", f"{self.path}: it was removed while it was in use")
        with sqlite_errors(self.path):
            self.db = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            try:
                self._open()
            except BaseException:
                self.db.close()
                raise

    def _open(self) -> None:
        self.db.row_factory = sqlite3.Row
        existed = self._stands()
        if existed:
            self._check_form()
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        if not existed or self._version() < VERSION:
            self._create()
        self.inode = os.stat(self.path).st_ino

    def _stands(self) -> bool:
        try:
            return os.path.getsize(self.path) > 0
        except OSError:
            return False

    def _has_jobs(self) -> bool:
        try:
            return bool(os.listdir(os.path.join(os.path.dirname(self.path), "jobs")))
        except OSError:
            return False

    def _version(self) -> int:
        return int(self.db.execute("PRAGMA user_version").fetchone()[0])

    def _check_form(self) -> None:
        application = int(self.db.execute("PRAGMA application_id").fetchone()[0])
        version = self._version()
        if version == 0 and application == 0 and not self.db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            return  # made by a start that was killed before its first transaction
        if application != APPLICATION_ID:
            text = f"{self.path}: not a ledger of shunter; nothing was changed"
            raise ShunterError("LEDGER_DAMAGED", text, hint=RESTORE)
        if version > VERSION:
            text = f"{self.path}: layout {version} is newer than {VERSION}; nothing was changed"
            raise ShunterError("LEDGER_NEWER", text, hint="use the newer helper of this host")

    def _create(self) -> None:
        with self.writing():
            version = self._version()
            for script in ([SCHEMA] if version == 0 else []) + [
                UPGRADES[number] for number in range(max(version, 1) + 1, VERSION + 1)
            ]:
                for statement in script.split(";\n"):
                    if statement.strip():
                        self.db.execute(statement)
            self.db.execute(f"PRAGMA application_id={APPLICATION_ID}")
            self.db.execute(f"PRAGMA user_version={VERSION}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with sqlite_errors(self.path):
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.db.execute("COMMIT")
            except BaseException:
                if self.db.in_transaction:  # SQLite itself rolls back when the disk is full
                    self.db.execute("ROLLBACK")
                raise

    def rows(self, sql: str, *values: Any) -> List[sqlite3.Row]:
        with sqlite_errors(self.path):
            return self.db.execute(sql, values).fetchall()

    def audit(self, actor: str, what: str, subject: str, detail: str = "") -> None:
        """Inside a transaction of the caller."""
        sql = "INSERT INTO audit (at, actor, what, subject, detail) VALUES (?, ?, ?, ?, ?)"
        self.db.execute(sql, (time.time(), actor, what, subject, detail))

    # --- leases -----------------------------------------------------------------------------------------------------

    def grant_lease(self, ask: LeaseAsk, *, available_memory_mb: Optional[int]) -> Tuple[Optional[str], Optional[str]]:
        """(token, None), or (None, why not). The same attempt gets its own lease again."""
        with self.writing():
            self._drop_expired()
            mine = self.db.execute("SELECT token FROM lease WHERE attempt_id = ?", (ask.attempt_id,)).fetchone()
            if mine:
                self._touch(ask.attempt_id)
                return mine["token"], None
            # Of an earlier attempt of this turn that came no further: home has given it up, its token is worth nothing.
            self.db.execute("DELETE FROM lease WHERE used = 0 AND job_id = ?", (ask.job_id,))
            gone = self.db.execute("SELECT state FROM attempt WHERE attempt_id = ?", (ask.attempt_id,)).fetchone()
            if gone:
                raise ShunterError("TOMBSTONED", f"attempt {ask.attempt_id} is {gone['state']}")
            other = self.db.execute(
                "SELECT job_id FROM lease WHERE used = 1 AND task_id = ? AND job_id <> ?", (ask.task_id, ask.job_id)
            ).fetchone()
            if other:  # given up by home, without a word from here: two agents never share a workspace
                return None, f"turn {other['job_id'].rpartition('-')[2]} of this task still runs there"
            used = self.db.execute("SELECT COALESCE(SUM(slots), 0), COALESCE(SUM(memory_mb), 0) FROM lease").fetchone()
            refusal = decide_admission(
                ask, used_slots=used[0], reserved_memory_mb=used[1], available_memory_mb=available_memory_mb
            )
            if refusal is not None:
                return None, refusal
            token = new_nonce()
            self.db.execute(
                "INSERT INTO lease VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?)",
                (
                    *(ask.attempt_id, ask.job_id, ask.task_id, token, ask.slots, ask.memory_mb),
                    *(read_boot_id(), boottime_s() + LEASE_TTL_S),
                ),
            )
            return token, None

    def _drop_expired(self) -> None:
        sql = "DELETE FROM lease WHERE used = 0 AND (boot_id <> ? OR expires_boottime_s < ?)"
        self.db.execute(sql, (read_boot_id(), boottime_s()))

    def _touch(self, attempt_id: str) -> None:
        sql = "UPDATE lease SET expires_boottime_s = ?, boot_id = ? WHERE attempt_id = ?"
        self.db.execute(sql, (boottime_s() + LEASE_TTL_S, read_boot_id(), attempt_id))

    def renew_lease(self, attempt_id: str, token: str) -> None:
        """Raises LEASE_LOST when it expired or was never ours."""
        with self.writing():
            self._drop_expired()
            self._require(attempt_id, token)
            self._touch(attempt_id)

    def check_lease(self, attempt_id: str, token: str) -> None:
        with sqlite_errors(self.path):
            self._require(attempt_id, token)

    def _require(self, attempt_id: str, token: str) -> None:
        sql = "SELECT token FROM lease WHERE attempt_id = ? AND (used OR boot_id = ? AND expires_boottime_s >= ?)"
        row = self.db.execute(sql, (attempt_id, read_boot_id(), boottime_s())).fetchone()
        if row is None or row["token"] != token:
            raise ShunterError("LEASE_LOST", f"attempt {attempt_id} holds no lease on this host")

    def release_unused_lease(self, attempt_id: str, token: str) -> None:
        """Only before acceptance; an accepted attempt's lease goes with its end. Repeating is harmless."""
        with self.writing():
            sql = "DELETE FROM lease WHERE attempt_id = ? AND token = ? AND used = 0"
            self.db.execute(sql, (attempt_id, token))

    def reserved(self) -> Tuple[int, int]:
        sql = (
            "SELECT COALESCE(SUM(slots), 0), COALESCE(SUM(memory_mb), 0) FROM lease "
            "WHERE used OR (boot_id = ? AND expires_boottime_s >= ?)"
        )
        row = self.rows(sql, read_boot_id(), boottime_s())[0]
        return int(row[0]), int(row[1])

    # --- attempts ---------------------------------------------------------------------------------------------------

    def accepted_as(self, job_id: str) -> Optional[str]:
        """The attempt as which a job was accepted, ended or not: at most one."""
        rows = self.rows("SELECT attempt_id FROM attempt WHERE job_id = ? AND state <> 'tombstoned'", job_id)
        return str(rows[0]["attempt_id"]) if rows else None

    def was_accepted(self, spec: JobSpec, token: str) -> bool:
        """Whether the attempt is stored already; when not, raises what forbids to accept it.

        TOMBSTONED, LEASE_LOST, or ATTEMPT_CONFLICT when another attempt of the job was accepted.
        """
        with sqlite_errors(self.path):
            row = self.db.execute("SELECT state FROM attempt WHERE attempt_id = ?", (spec.attempt_id,)).fetchone()
            if row and row["state"] == "tombstoned":
                raise ShunterError("TOMBSTONED", f"attempt {spec.attempt_id} was given up")
            if row:
                return True
            self._require(spec.attempt_id, token)
            other = self.accepted_as(spec.job_id)
            if other:
                raise ShunterError("ATTEMPT_CONFLICT", f"job {spec.job_id} was accepted as {other}")
            return False

    def accept(self, spec: JobSpec, token: str, notices: Tuple[str, ...]) -> bool:
        """Store the attempt and bind its lease; False when it is stored already. Raises what `was_accepted` does."""
        with self.writing():
            if self.was_accepted(spec, token):
                return False
            self.db.execute(
                "INSERT INTO attempt (attempt_id, job_id, state, spec, base_oid, accepted_at, notices)"
                " VALUES (?, ?, 'accepted', ?, ?, ?, ?)",
                (spec.attempt_id, spec.job_id, dumps(without_values(spec)), spec.base_oid, time.time(), dumps(notices)),
            )
            self.db.execute("UPDATE lease SET used = 1 WHERE attempt_id = ?", (spec.attempt_id,))
            sql = "INSERT OR IGNORE INTO task (task_id, project_id, base_oid) VALUES (?, ?, ?)"
            self.db.execute(sql, (spec.task_id, spec.project_id, spec.base_oid))
            self.audit("home", "accepted", spec.attempt_id)
            return True

    def tombstone(self, attempt_id: str, job_id: str) -> str:
        """Forbid a later start; gives the state in force: tombstoned, or accepted/ended when it came too late."""
        with self.writing():
            row = self.db.execute("SELECT state FROM attempt WHERE attempt_id = ?", (attempt_id,)).fetchone()
            if row:
                return str(row["state"])
            sql = "INSERT INTO attempt (attempt_id, job_id, state) VALUES (?, ?, 'tombstoned')"
            self.db.execute(sql, (attempt_id, job_id))
            self.db.execute("DELETE FROM lease WHERE attempt_id = ? AND used = 0", (attempt_id,))
            self.audit("home", "tombstoned", attempt_id)
            return "tombstoned"

    def find(self, attempt_id: str) -> Optional[Dict[str, Any]]:
        rows = self.rows("SELECT * FROM attempt WHERE attempt_id = ?", attempt_id)
        return dict(rows[0]) if rows else None

    def load_spec(self, attempt_id: str) -> JobSpec:
        row = self.find(attempt_id)
        if row is None or row["spec"] is None:
            raise ShunterError("PROTOCOL", f"attempt {attempt_id} is not known here")
        return loads(JobSpec, row["spec"], where=f"ledger, attempt {attempt_id}", code="LEDGER_DAMAGED")

    def accepted_attempts(self) -> List[str]:
        return [row["attempt_id"] for row in self.rows("SELECT attempt_id FROM attempt WHERE state = 'accepted'")]

    def record_end(self, attempt_id: str, end: End, *, actor: str) -> bool:
        """End the attempt and release its lease, once; False when that was done before."""
        with self.writing():
            changed = self.db.execute(
                "UPDATE attempt SET state = 'ended', end = ?, ended_at = ? WHERE attempt_id = ? AND state = 'accepted'",
                (dumps(end), time.time(), attempt_id),
            ).rowcount
            self.db.execute("DELETE FROM lease WHERE attempt_id = ?", (attempt_id,))
            if changed:
                self._queue_push(attempt_id, end)
                self.audit(actor, "ended", attempt_id, end.outcome)
            return bool(changed)

    def replace_publication(self, attempt_id: str, end: End) -> None:
        """A publication that failed at the end was carried out later."""
        with self.writing():
            sql = "UPDATE attempt SET end = ? WHERE attempt_id = ? AND state = 'ended'"
            if self.db.execute(sql, (dumps(end), attempt_id)).rowcount:
                self._queue_push(attempt_id, end)
            self.audit("home", "published", attempt_id)

    def note(self, actor: str, what: str, subject: str, detail: str = "") -> None:
        with self.writing():
            self.audit(actor, what, subject, detail)

    # --- the outbox -------------------------------------------------------------------------------------------------

    def _queue_push(self, attempt_id: str, end: End) -> None:
        """Inside the transaction of an end: what was published is to go to origin, if the task said so."""
        spec = self.load_spec(attempt_id)
        if spec.push is None or end.publication is None or not end.publication.commits:
            return
        known = self.find_push(spec.task_id)
        if known is not None and known["state"] == "pushed" and known["wanted_oid"] == end.publication.head_oid:
            return
        if known is None:
            self.db.execute(
                "INSERT INTO outbox (task_id, project_id, base_oid, url, branch, state, wanted_oid)"
                " VALUES (?, ?, ?, ?, ?, 'pending', ?)",
                (
                    *(spec.task_id, spec.project_id, spec.base_oid, spec.push.url, spec.push.branch),
                    end.publication.head_oid,
                ),
            )
        else:
            sql = "UPDATE outbox SET state = 'pending', wanted_oid = ? WHERE task_id = ?"
            self.db.execute(sql, (end.publication.head_oid, spec.task_id))
        self.audit("supervisor", "to be pushed", spec.task_id, end.publication.head_oid)

    def find_push(self, task_id: str) -> Optional[Dict[str, Any]]:
        rows = self.rows("SELECT * FROM outbox WHERE task_id = ?", task_id)
        return dict(rows[0]) if rows else None

    def note_push_try(self, task_id: str, oid: str) -> None:
        """Before anything goes out: should the answer be lost, a branch at this commit is ours."""
        with self.writing():
            sql = "UPDATE outbox SET trying_oid = ?, tries = tries + 1 WHERE task_id = ?"
            self.db.execute(sql, (oid, task_id))

    def record_push(self, task_id: str, oid: str, *, state: str, error: Optional[ShunterError], actor: str) -> None:
        """What came of a try. When a newer turn wants another commit by now, the entry stays pending."""
        facts = (error.code, error.text, error.hint) if error else (None, None, None)
        with self.writing():
            if state == "pushed":
                self.db.execute("UPDATE outbox SET pushed_oid = ? WHERE task_id = ?", (oid, task_id))
            sql = (
                "UPDATE outbox SET state = ?, error_code = ?, error_text = ?, hint = ?"
                " WHERE task_id = ? AND wanted_oid = ? AND state <> 'dropped'"
            )
            self.db.execute(sql, (state, *facts, task_id, oid))
            self.audit(actor, state, task_id, f"{error.code}: {error.text}" if error else oid)

    def drop_push(self, task_id: str, *, actor: str) -> None:
        """Somebody gave up what was not delivered."""
        with self.writing():
            sql = "UPDATE outbox SET state = 'dropped' WHERE task_id = ? AND state <> 'pushed'"
            if self.db.execute(sql, (task_id,)).rowcount:
                self.audit(actor, "dropped", task_id)

    # --- tasks ------------------------------------------------------------------------------------------------------

    def find_task(self, task_id: str) -> Optional[Dict[str, Any]]:
        rows = self.rows("SELECT * FROM task WHERE task_id = ?", task_id)
        return dict(rows[0]) if rows else None

    def open_tasks(self) -> List[str]:
        return [row["task_id"] for row in self.rows("SELECT task_id FROM task WHERE closed_at IS NULL")]

    def attempts_of(self, task_id: str) -> List[Dict[str, Any]]:
        """In the order of acceptance."""
        sql = "SELECT * FROM attempt WHERE job_id GLOB ? AND state <> 'tombstoned' ORDER BY accepted_at, attempt_id"
        return [dict(row) for row in self.rows(sql, task_id + "-*")]

    def close_task(self, task_id: str, *, actor: str, detail: str) -> None:
        with self.writing():
            self.db.execute("UPDATE task SET closed_at = ? WHERE task_id = ?", (time.time(), task_id))
            self.audit(actor, "closed", task_id, detail)

    def is_current(self) -> bool:
        """False once another file stands at the path: somebody restored a copy or moved ours aside."""
        try:
            return os.stat(self.path).st_ino == self.inode
        except OSError:
            return False

    def close(self) -> None:
        self.db.close()


def without_values(spec: JobSpec) -> JobSpec:
    """Records hold names of variables, never values; those stand in the job's own files, which go with the task."""
    return changed(spec, env=dict.fromkeys(spec.env, ""), files=dict.fromkeys(spec.files, ""))
