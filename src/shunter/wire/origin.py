"""The address of an origin: what may be recorded and shown of it, and what is never. Pure.

An address is a URL (https, http, ssh, git, file), the short form of ssh (`user@machine:path`) or an absolute path. It
is stored, sent and shown without anything that could be a secret: each side uses its own account's credentials.
"""

from __future__ import annotations

import re
from typing import Optional

from .errors import ShunterError

_URL = re.compile(
    r"(https?|ssh|git|git\+ssh|ssh\+git|file)://(?:([^/@]*)@)?(\[[^\]/]*\]|[^/:?#]*)(:\d+)?(/[^?#]*)?\Z", re.I
)
_SCP = re.compile(
    r"(?:([A-Za-z0-9._~+-]+)@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(?!:|//)([^\x00-\x20\x7f][^\x00-\x1f\x7f]*)\Z"
)
_USERINFO = re.compile(r"(?<=://)[^/@\s'\"]*@")
_QUERY = re.compile(r"(?<=://)([^\s'\"?#]*)[?#][^\s'\"]*")
_SHOWN_CHARACTERS = 600


def public_url(url: str) -> Optional[str]:
    """The address without credentials; None when it has a form that no host may be handed.

    Over http everything before the `@` goes, since a token may stand as the user's name; over ssh the name stays, which
    says whose account it is, and a password goes.
    """
    if any(ord(character) < 32 or ord(character) == 127 for character in url):
        return None
    if url.startswith("/"):
        return url
    head = re.sub(r"[?#].*\Z", "", url) if re.match(r"https?://", url, re.I) else url
    found = _URL.match(head)
    if found:
        scheme, user, host, port, path = found[1].lower(), found[2], found[3], found[4] or "", found[5] or ""
        if (not host and scheme != "file") or host.startswith("-"):
            return None
        keeps_name = user and scheme not in ("http", "https", "file")
        name = (user or "").partition(":")[0]
        if keeps_name and name.startswith("-"):
            return None
        return f"{scheme}://{name + '@' if keeps_name and name else ''}{host}{port}{path}"
    if "://" not in url and _SCP.match(url) and not url.startswith("-"):
        return url
    return None


def checked_url(url: str) -> str:
    """The address itself when it is one that `public_url` would leave as it is; raises PROTOCOL otherwise."""
    if not isinstance(url, str) or len(url) > 2000 or public_url(url) != url:
        raise ShunterError("PROTOCOL", "not an address of an origin without credentials")
    return url


def origin_host(url: str) -> str:
    """Which machine it is on, as capabilities call it: lower case, a port only when the URL names one; else `file`."""
    found = _URL.match(url)
    if found:
        return (found[3].lower() + (found[4] or "")) if found[1].lower() != "file" else "file"
    scp = None if url.startswith("/") else _SCP.match(url)
    return scp[2].lower() if scp else "file"


def capability(url: str) -> str:
    return "origin:" + origin_host(url)


def sanitised(text: str) -> str:
    """Words of git or of a server for a record: no credentials in URLs, no control characters, a bounded length."""
    without = _QUERY.sub(r"\1", _USERINFO.sub("", text))
    printable = "".join(each if each.isprintable() else " " for each in without)
    line = " ".join(printable.split())
    return line if len(line) <= _SHOWN_CHARACTERS else line[: _SHOWN_CHARACTERS - 1] + "…"
