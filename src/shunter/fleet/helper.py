"""The host helper as one file: shunter-host-<version>-<digest>.pyz, made of the three lowest floors.

Built from the installed package each time it is needed (a few milliseconds), byte for byte the same for the same
sources, so its digest names it. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from .. import __version__
from ..host.durable import is_full
from ..wire.errors import ShunterError

FLOORS = ("wire", "agents", "host")
FIXED_TIME = (2020, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Helper:
    name: str
    digest: str  # the first 16 hexadecimal digits of SHA-256
    data: bytes


def build_helper() -> Helper:
    root = files("shunter")
    sources = {"shunter/__init__.py": (root / "__init__.py").read_bytes()}
    for floor in FLOORS:
        for entry in (root / floor).iterdir():
            if entry.name.endswith(".py"):
                sources[f"shunter/{floor}/{entry.name}"] = entry.read_bytes()
    sources["__main__.py"] = sources.pop("shunter/host/zipmain.py")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(sources):
            packed.writestr(zipfile.ZipInfo(name, FIXED_TIME), sources[name], zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    digest = hashlib.sha256(data).hexdigest()[:16]
    return Helper(f"shunter-host-{__version__}-{digest}.pyz", digest, data)


def install_helper(helper: Helper, directory: Path) -> Path:
    """Write it beside, fsync, rename; a file that is there already is compared and kept. Raises IO or DISK_FULL."""
    path = directory / helper.name
    try:
        if path.is_file() and path.read_bytes() == helper.data:
            return path
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        aside = directory / f".{helper.name}.{os.getpid()}"
        with aside.open("wb") as file:
            file.write(helper.data)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
    except OSError as exc:
        code = "DISK_FULL" if is_full(exc) else "IO"
        raise ShunterError(code, f"{exc.filename or path}: {exc.strerror}") from exc
    return path
