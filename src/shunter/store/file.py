# ruff: noqa: PTH108, PTH102, PTH112, PTH116, PTH120, PTH123 (pathlib would cost every command its import)
"""The store file: making it, telling whether it is ours and whole, bringing it to the present schema.

A new store is built under another name and linked into place, so that at no time a half-made or empty file stands
where the store belongs. Hence an empty file there is damage (a crash of something else, a full disk), never a
beginning, and nothing is ever written into a file that was not recognised first. Recognised means: SQLite's header
with our application id, a length that fits the header, and a schema that a read-only connection can read; only then
is the file opened for writing, since SQLite itself would write (checkpoint) when such a connection is closed.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

from ..host.durable import is_full
from ..wire.errors import ShunterError
from .queries import load_migrations

APPLICATION_ID = 0x53485452  # "SHTR"
BUSY_TIMEOUT_S = 10.0
_HEADER = b"SQLite format 3\0"
_HEADER_BYTES = 100

Trace = Callable[[str], object]


def connect(path: str, *, readonly: bool = False, trace: Trace | None = None) -> sqlite3.Connection:
    """A connection with every setting that the store relies on; transactions are begun by hand (lesson 1)."""
    uri = "file:" + _quoted(path) + ("?mode=ro" if readonly else "?mode=rw")
    link = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    try:
        link.set_trace_callback(trace)
        link.execute("PRAGMA foreign_keys = ON")
        # WAL alone loses the last commits in a power cut; FULL costs one fsync a commit and keeps every answer true.
        link.execute("PRAGMA synchronous = FULL")
    except BaseException:
        link.close()
        raise
    return link


def is_used(path: str) -> bool:
    """Whether there is a store, or was one whose write-ahead log is left, or nobody may look; opening tells which."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return _has_content(path + "-wal")
    except OSError:
        pass
    return True


def create_file(path: str) -> None:
    """Put a fresh store where none is, its directory included; when somebody else was faster, theirs stays."""
    folder = os.path.dirname(path)
    with store_errors(folder):
        _make_private(folder)
    made = f"{path}.{os.getpid()}-{os.urandom(4).hex()}.new"
    try:
        with store_errors(path):
            os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(connect(made)) as link:
                # Nobody else has this file and `_sync` follows, so every statement writes into it and fails when there
                # is no room. A write-ahead log would be folded in by the closing, which keeps that to itself.
                link.execute("PRAGMA synchronous = OFF")
                link.execute("PRAGMA journal_mode = MEMORY")
                migrate(link, path)
                link.execute("PRAGMA journal_mode = WAL")
            _sync(made)
            with suppress(FileExistsError):
                os.link(made, path)
            _sync(folder)
    finally:
        for left in (made, made + "-wal", made + "-shm", made + "-journal"):
            with suppress(OSError):
                os.unlink(left)


def check_file(path: str, *, latest: int) -> int:
    """The file's schema version, once it is certain that the file is a whole store of ours; writes nothing."""
    with store_errors(path):
        _check_header(path)
        with closing(connect(path, readonly=True)) as link:
            version = read_version(link)
            link.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if version > latest:
        raise ShunterError(
            "STORE_NEWER",
            f"{path} has schema {version}; this version of shunter knows schemas up to {latest}. Nothing was changed",
            hint="upgrade shunter",
        )
    if version < 1:
        raise damaged(path, "it has no schema")
    return version


def migrate(link: sqlite3.Connection, path: str, *, scripts: list[str] | None = None) -> None:
    """Bring the open file to the latest schema, each script in a transaction of its own; harmless when it is there."""
    scripts = load_migrations() if scripts is None else scripts
    for target, script in enumerate(scripts, start=1):
        if read_version(link) >= target:
            continue
        with write_transaction(link):
            if read_version(link) >= target:  # another process migrated while we waited for the lock
                continue
            for statement in split_statements(script):
                link.execute(statement)
            link.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            link.execute(f"PRAGMA user_version = {target}")


@contextmanager
def write_transaction(link: sqlite3.Connection) -> Iterator[None]:
    """The only way to write: take the lock first, so that what is read inside stays true until the commit."""
    link.execute("BEGIN IMMEDIATE")
    try:
        yield
        link.execute("COMMIT")
    except BaseException:
        if link.in_transaction:  # SQLite has rolled back by itself after a full disk
            link.execute("ROLLBACK")
        raise


def read_version(link: sqlite3.Connection) -> int:
    return int(link.execute("PRAGMA user_version").fetchone()[0])


def split_statements(script: str) -> Iterator[str]:
    """The statements of a script one by one; executescript() would commit behind our back."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if line.rstrip().endswith(";") and sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    assert not statement.strip(), "a migration ends in the middle of a statement"


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Errors of SQLite and of the file system end here."""
    try:
        yield
    except sqlite3.Error as exc:
        raise _translated(exc, path) from exc
    except OSError as exc:
        raise _translated_os(exc, path) from exc


def damaged(path: str, why: str) -> ShunterError:
    return ShunterError(
        "STORE_DAMAGED",
        f"{path} is not a whole shunter store: {why}. Nothing was changed",
        hint="put a back-up in its place, or begin anew by moving it aside together with its -wal and -shm"
        " (the hosts keep their own records and results)",
    )


def _check_header(path: str) -> None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        # SQLite would play this log into whatever database stands in its place.
        raise damaged(path, "the file is gone, its write-ahead log is still there") from None
    if not stat.S_ISREG(found.st_mode):
        raise ShunterError("STORE_UNAVAILABLE", f"{path} is not a regular file", hint="choose another place")
    with open(path, "rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header:
        raise damaged(path, "it is empty")
    if not header.startswith(_HEADER):
        raise damaged(path, "it is no SQLite database")
    if len(header) < _HEADER_BYTES:
        raise damaged(path, f"it ends after {len(header)} bytes")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise damaged(path, "it belongs to another program")
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    wanted = page_bytes * int.from_bytes(header[28:32], "big")
    # With a write-ahead log the pages that are missing may stand in the log: SQLite itself judges then.
    if found.st_size < wanted and not _has_content(path + "-wal"):
        raise damaged(path, f"it has {found.st_size} bytes instead of {wanted}")


def _make_private(folder: str) -> None:
    """Every missing directory on the way, closed to others; makedirs() would open those in between."""
    if not os.path.isdir(folder):
        _make_private(os.path.dirname(folder))
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)


def _has_content(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False


def _translated(exc: sqlite3.Error, path: str) -> ShunterError:
    code = getattr(exc, "sqlite_errorcode", 0) or 0
    name = getattr(exc, "sqlite_errorname", None) or type(exc).__name__
    primary = code & 0xFF
    # The files beside the store (-wal, -shm) meet a full disk as an I/O error or as one that cannot be opened.
    if primary == sqlite3.SQLITE_FULL or (
        primary in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) and _is_full(path)
    ):
        return _disk_full(path)
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or code == sqlite3.SQLITE_IOERR_SHORT_READ:
        return damaged(path, str(exc))
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return ShunterError(
            "STORE_UNAVAILABLE",
            f"{path} was locked by another process for more than {BUSY_TIMEOUT_S:.0f} s",
            hint=f"see who holds it: fuser {path}",
        )
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return _unavailable(path, f"it may not be written ({exc})")
    if primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS):
        return _unavailable(path, f"{exc} ({name})")
    return ShunterError("INTERNAL", f"{path}: {exc} ({name})")


def _translated_os(exc: OSError, path: str) -> ShunterError:
    if is_full(exc):
        return _disk_full(path)
    return _unavailable(path, exc.strerror or str(exc))


def _is_full(path: str) -> bool:
    try:
        found = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < 128 * 1024


def _disk_full(path: str) -> ShunterError:
    folder = os.path.dirname(path) or "."
    return ShunterError("DISK_FULL", f"no room left on the disk of {path}; nothing was changed", hint=f"df -h {folder}")


def _unavailable(path: str, why: str) -> ShunterError:
    return ShunterError(
        "STORE_UNAVAILABLE",
        f"{path} could not be opened: {why}",
        hint=f"check owner and mode of the file and its directory: ls -ld {os.path.dirname(path) or '.'} {path}",
    )


def _quoted(path: str) -> str:
    """The path as part of an SQLite URI: `?`, `#` and `%` have a meaning there."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
