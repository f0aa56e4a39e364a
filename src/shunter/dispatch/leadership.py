"""Who this dispatcher is, and whether another one still lives (P7)."""

from __future__ import annotations

import os

from ..fleet.places import Places
from ..host.identity import ALIVE, DEAD, judge_process, load_host_id, read_boot_id
from ..host.supervisor import start_time
from ..model.records import Owner
from ..wire.ids import new_nonce


def this_process(places: Places) -> Owner:
    """A new identity at each start; a host name or a reused pid can never be mistaken for an older dispatcher."""
    return Owner(
        id="dispatcher-" + new_nonce()[:12],
        host_id=load_host_id(str(places.state_dir)),
        boot_id=read_boot_id(),
        pid=os.getpid(),
        start_time=start_time(os.getpid()),
    )


def is_dead(owner: Owner, *, here: Owner) -> bool | None:
    """True, False, or None when it cannot be told from here."""
    if owner.host_id != here.host_id:
        return None
    verdict = judge_process(owner.pid, owner.start_time, owner.boot_id)
    return {ALIVE: False, DEAD: True}.get(verdict)
