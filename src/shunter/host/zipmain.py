"""`__main__.py` of shunter-host.pyz: unpack once into <data root>/lib/<digest>/, then run from there.

Python caches no byte code of a zip file; from the directory every later start takes a third of the time, and the
supervisor needs a third less memory, because nothing is compiled in it. Runs as a script: no relative imports.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def unpacked(archive: str, data_root: str) -> str:
    """The directory that holds the package; made beside and renamed, so that it is complete or absent.

    The archive's name ends in its digest, which whoever installed it has verified.
    """
    digest = os.path.basename(archive)[: -len(".pyz")].rpartition("-")[2]
    os.environ["SHUNTER_HELPER_DIGEST"] = digest
    target = os.path.join(data_root, "lib", digest)
    if not os.path.isdir(target):
        _unpack(archive, target)
    return target


def _unpack(archive: str, target: str) -> None:
    import shutil
    import zipfile

    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    aside = target + "." + os.urandom(4).hex()
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(aside)
        _compile(aside, target)
        for directory, _, names in os.walk(aside):
            for name in (".", *names):
                _sync(os.path.join(directory, name))  # or a power cut could leave empty files under this name for ever
    except OSError:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    try:
        os.rename(aside, target)
    except OSError:  # somebody else was first
        shutil.rmtree(aside, ignore_errors=True)
        if not os.path.isdir(target):
            raise


def _compile(aside: str, target: str) -> None:
    """All at once. Python itself would keep what a full disk took a part of, and fail with it ever after."""
    import errno
    import marshal
    import py_compile

    for directory, _, names in os.walk(aside):
        for name in names:
            path = os.path.join(directory, name)
            made = py_compile.compile(path, dfile=target + path[len(aside) :], doraise=True)
            try:
                with open(made or "", "rb") as file:
                    marshal.loads(file.read()[16:])  # noqa: S302 (written by ourselves a moment ago)
            except (EOFError, ValueError, TypeError):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), made) from None


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _refuse(exc: OSError, data_root: str) -> NoReturn:
    """As `wire.rpc.failure` writes it; the module is in the archive that could not be unpacked."""
    import errno
    import json

    is_full = exc.errno in (errno.ENOSPC, errno.EDQUOT)
    is_unusable = exc.errno in (errno.EROFS, errno.EIO, errno.ESTALE)
    code = "DISK_FULL" if is_full else "DISK_UNUSABLE" if is_unusable else "IO"
    data = {"code": code, "hint": f"make room in {data_root}" if is_full else None}
    error = {"code": -32000, "message": f"{exc.filename or data_root}: {exc.strerror}", "data": data}
    print(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}, separators=(",", ":")))
    sys.exit(74)


def main() -> None:
    words = sys.argv
    at = words.index("--data-root") if "--data-root" in words else -1
    if at < 0 or at + 1 >= len(words):
        sys.stderr.write("shunter-host: option --data-root is missing\n")
        sys.exit(64)
    data_root = os.path.realpath(os.path.expanduser(words[at + 1]))
    try:
        sys.path[0] = unpacked(sys.path[0], data_root)
    except OSError as exc:
        _refuse(exc, data_root)
    from shunter.host.main import main as run

    run()


main()
