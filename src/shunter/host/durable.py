"""Small files: there complete or not at all, also after a power cut, and read without trust in what stands there.

`os` and what comes with it, nothing else: see supervisor.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def json_line(pairs: Mapping[str, object]) -> bytes:
    """JSON of numbers, None, booleans and strings without control characters; the json module costs 1 MiB."""
    out = []
    for key, value in pairs.items():
        if value is None:
            text = "null"
        elif isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, (int, float)):
            text = repr(value)
        else:
            clean = "".join(c for c in str(value) if " " <= c <= "~")
            text = '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'
        out.append('"' + key + '":' + text)
    return ("{" + ",".join(out) + "}\n").encode()


def is_full(exc: OSError) -> bool:
    """Whether there may be room later."""
    return exc.errno in (errno.ENOSPC, errno.EDQUOT)


def is_unusable_disk(exc: OSError) -> bool:
    """Whether the file system as a whole takes nothing, and not for want of room."""
    return exc.errno in (errno.EROFS, errno.EIO, errno.ESTALE)


def disk_code(exc: OSError, otherwise: str) -> str:
    """The error code for a file that could not be written."""
    return "DISK_FULL" if is_full(exc) else "DISK_UNUSABLE" if is_unusable_disk(exc) else otherwise


def write_all(fd: int, data: bytes) -> int:
    """Bytes written; fewer than given when the disk does not take them."""
    done = 0
    while done < len(data):
        try:
            done += os.write(fd, data[done:] if done else data)
        except InterruptedError:
            continue
        except OSError:
            break
    return done


def write_durably(path: str, data: bytes) -> None:
    """Write aside, fsync, rename, fsync of the directory."""
    aside = _write_aside(path, data)
    _or_remove(aside, os.rename, path)


def create_durably(path: str, data: bytes) -> bool:
    """The same for a file that must not be there yet: False when it is, whoever made it and however long ago."""
    aside = _write_aside(path, data)
    try:
        _or_remove(aside, os.link, path)
    except FileExistsError:
        return False
    os.unlink(aside)
    return True


def _write_aside(path: str, data: bytes) -> str:
    aside = path + "." + os.urandom(4).hex()  # two writers of one path must not share it
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if write_all(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        os.fsync(fd)
    except OSError:
        os.unlink(aside)
        raise
    finally:
        os.close(fd)
    return aside


def _or_remove(aside: str, act: object, path: str) -> None:
    try:
        act(aside, path)  # type: ignore[operator]
        sync_directory(os.path.dirname(path))
    except OSError:
        remove(aside)
        raise


def sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_regular(path: str, *, follows_links: bool = False) -> int:
    """A descriptor to read a regular file with; OSError for all else. Waits for no pipe: an agent may have made one."""
    links = 0 if follows_links else os.O_NOFOLLOW
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | links)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def is_unusable(exc: OSError) -> bool:
    """Whether it tells that no file can be read at the place, and not of a want of descriptors or memory."""
    absent = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL)
    return exc.errno in absent or isinstance(exc, PermissionError)


def read_regular(path: str, limit_bytes: int) -> bytes | None:
    """Content of a regular file of at most `limit_bytes`, else None. Follows no link. Raises OSError for a want."""
    try:
        fd = open_regular(path)
    except OSError as exc:
        if not is_unusable(exc):
            raise
        return None
    with open(fd, "rb") as file:
        return file.read() if os.fstat(fd).st_size <= limit_bytes else None


def remove(path: str) -> None:
    """Remove a file; harmless when it is gone or cannot be removed."""
    try:
        os.unlink(path)
    except OSError:
        pass


def make_scratch(parent: str, prefix: str) -> str:
    """A new directory of ours alone; `tempfile` would cost each start of the helper 15 ms."""
    while True:
        path = os.path.join(parent, prefix + os.urandom(6).hex())
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue
        return path
