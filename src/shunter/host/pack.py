"""A small result as the bytes of one pack, so that it comes home in an answer of the open session.

git's own transport costs a connection and half a dozen processes at each end, whatever the size. What is large, or
stands in a mirror with a limited history, still goes that way.
"""

from __future__ import annotations

import base64
import os
import subprocess
from typing import Optional

from ..wire.ids import checked_oid
from ..wire.messages import Pack, PackAsk
from .mirror import start_packer
from .refs import published_head

PACK_LIMIT = 512 << 10  # as base64 it must fit into one message


def pack_result(mirror: str, ask: PackAsk) -> Pack:
    """No data: it is to be fetched."""
    if os.path.exists(os.path.join(mirror, "shallow")) or published_head(mirror, ask.task_id) != ask.head_oid:
        return Pack(None)
    found = _pack(mirror, ask.head_oid, checked_oid(ask.base_oid))
    return Pack(None if found is None else base64.b64encode(found).decode())


def _pack(mirror: str, head_oid: str, base_oid: str) -> Optional[bytes]:
    with start_packer(mirror, head_oid, [base_oid], errors=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        data = process.stdout.read(PACK_LIMIT + 1)
        if len(data) > PACK_LIMIT:
            process.kill()
            return None
    return data if process.returncode == 0 else None
