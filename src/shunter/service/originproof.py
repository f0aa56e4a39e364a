"""Proving that a host can work with an origin (`origin:MACHINE`): it fetches, and it pushes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..dispatch.hosts import HostEntry
from ..fleet.client import HostClient
from ..fleet.places import Places
from ..git.origin import find_origin
from ..git.repository import open_repository
from ..wire.errors import ShunterError
from ..wire.messages import OriginAsk, OriginProof, Tried
from ..wire.origin import capability, public_url
from .proof import Finding, open_client

LIMIT_S = 600.0


def prove_origin(entry: HostEntry, places: Places, given: str | None) -> Iterator[Finding]:
    """Nothing for a host that is declared for no origin, unless one was given."""
    declared = [tag for tag in entry.config.tags if tag.startswith("origin:")]
    url = _checked(given) if given is not None else _of_this_checkout()
    if url is not None and (given is not None or capability(url) in declared):
        client = open_client(entry, places)
        try:
            yield from _prove(client, url, writes=given is not None)
        finally:
            client.close()
        if capability(url) not in declared:
            tags = ", ".join(f'"{tag}"' for tag in (*entry.config.tags, capability(url)))
            yield Finding("tags", None, f"{capability(url)} is not among them", f"tags = [{tags}] in its entry")
        declared = [tag for tag in declared if tag != capability(url)]
    for tag in declared:
        remedy = f"shunter host check {entry.name} --origin URL"
        yield Finding("tags", None, f"{tag} is declared and was not tried", remedy)


def _checked(given: str) -> str:
    url = public_url(given)
    if url is None:
        hint = "an https, ssh or file URL, or user@machine:path"
        raise ShunterError("USAGE", "that is no address of an origin", hint=hint)
    if url != given:
        hint = "sign the host's account in, and give the address without"
        raise ShunterError("USAGE", "the address holds credentials; a host uses its account's own", hint=hint)
    return url


def _of_this_checkout() -> str | None:
    try:
        return find_origin(open_repository(str(Path.cwd()))).push_url
    except (ShunterError, OSError):
        return None


def _prove(client: HostClient, url: str, *, writes: bool) -> Iterator[Finding]:
    try:
        proof: OriginProof = client.call("origin.prove", OriginAsk(url, writes), limit_s=LIMIT_S)
    except ShunterError as exc:
        yield Finding("fetch from origin", False, f"{exc.code}: {exc.text}", exc.hint)
        return
    yield _finding("fetch from origin", url, proof.fetch)
    if proof.push is not None:
        yield _finding("push to origin", url, proof.push)


def _finding(what: str, url: str, tried: Tried) -> Finding:
    if tried.done is not None:
        return Finding(what, True, f"{url}: {tried.done}")
    return Finding(what, False, f"{tried.error_code}: {tried.error_text}", tried.hint)
