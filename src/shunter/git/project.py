"""What names a project: its origin URL in one normal form, or else the repository itself."""

from __future__ import annotations

import hashlib
import os
import re

_SCP = re.compile(r"(?:[^@/:\s]+@)?(\[[^\]]+\]|[^/:\s]+):(?!//)(.*)\Z", re.DOTALL)
_URL = re.compile(
    r"([a-z][a-z0-9+.-]*)://(?:[^@/]*@)?(\[[^\]]*\]|[^/:]*)(?::(\d*))?(/.*)?\Z", re.IGNORECASE | re.DOTALL
)
_DEFAULT_PORTS = {"ssh": "22", "git+ssh": "22", "ssh+git": "22", "git": "9418", "http": "80", "https": "443"}
_SLUG_MAX = 40
_HASH_DIGITS = 12


def normalise_origin(url: str, *, relative_to: str) -> str:
    """`host/path` for every form of the same URL; credentials, scheme, default port, `.git` and slashes are gone.

    A local path becomes absolute and real. The result names a project, it cannot be fetched from.
    """
    match = _URL.match(url)
    if match and match[1].lower() == "file":
        return _local(match[4] or "/", relative_to)
    if match:
        scheme, host, port = match[1].lower(), match[2].lower(), match[3]
        shown_port = f":{port}" if port and port != _DEFAULT_PORTS.get(scheme) else ""
        return f"{host}{shown_port}/{_trim(match[4] or '')}"
    scp = _SCP.match(url)
    if scp and not url.startswith((".", "/")):
        return f"{scp[1].lower()}/{_trim(scp[2])}"
    return _local(url, relative_to)


def _trim(path: str) -> str:
    return path.strip("/").removesuffix(".git").rstrip("/").removeprefix("~/")


def _local(path: str, relative_to: str) -> str:
    full = os.path.realpath(os.path.join(relative_to, os.path.expanduser(path)))  # noqa: PTH111, PTH118
    return "/" + _trim(full)


def name_of(normal: str) -> str:
    """Last part of a normalised origin or a path: what people call the project."""
    return normal.rstrip("/").rsplit("/", 1)[-1] or "project"


def project_id(name: str, normal: str) -> str:
    """A directory name that a person recognises and that only this project has: slug and 12 digits of a hash."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_SLUG_MAX].strip("-") or "project"
    return f"{slug}-{digest(normal)[:_HASH_DIGITS]}"


def digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()
