"""A small result as the bytes of one pack, so that it comes home in an answer of the open session.

git's own transport costs a connection and half a dozen processes at each end, whatever the size. What is large, or
stands in a mirror with a limited history, still goes that way. The pack in which a first result came into the mirror
serves for this too, when it is so small that the bases of its deltas, which home has, make no difference.
"""

from __future__ import annotations

import base64
import os
import subprocess
from typing import Optional

from ..wire.codec import dumps, loads
from ..wire.errors import ShunterError
from ..wire.ids import checked_oid
from ..wire.messages import Pack, PackAsk
from ..wire.record import dataclass
from .durable import read_regular
from .gitrun import write_atomically
from .mirror import start_packer
from .refs import note_path, published_head

PACK_LIMIT = 512 << 10  # as base64 it must fit into one message
STANDING_LIMIT = 64 << 10


@dataclass(frozen=True)
class PackNote:
    """A pack of the mirror that has all of `head_oid` beyond `base_oid`."""

    head_oid: str
    base_oid: str
    path: str


def note_pack(mirror: str, task_id: str, note: PackNote) -> None:
    path = note_path(mirror, task_id)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomically(path, dumps(note).encode())


def pack_result(mirror: str, ask: PackAsk) -> Pack:
    """No data: it is to be fetched."""
    if os.path.exists(os.path.join(mirror, "shallow")) or published_head(mirror, ask.task_id) != ask.head_oid:
        return Pack(None)
    found = _standing(mirror, ask) or _pack(mirror, ask.head_oid, checked_oid(ask.base_oid))
    return Pack(None if found is None else base64.b64encode(found).decode())


def _standing(mirror: str, ask: PackAsk) -> Optional[bytes]:
    path = note_path(mirror, ask.task_id)
    try:
        note = loads(PackNote, read_regular(path, 4096) or b"", where=path)
        return (
            read_regular(note.path, STANDING_LIMIT) if note == PackNote(ask.head_oid, ask.base_oid, note.path) else None
        )
    except (OSError, ShunterError):
        return None


def _pack(mirror: str, head_oid: str, base_oid: str) -> Optional[bytes]:
    with start_packer(mirror, head_oid, [base_oid], errors=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        data = process.stdout.read(PACK_LIMIT + 1)
        if len(data) > PACK_LIMIT:
            process.kill()
            return None
    return data if process.returncode == 0 else None
