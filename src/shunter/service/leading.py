"""Whether anybody is at work on what is open; asked by readers, who never start anything themselves (P17)."""

from __future__ import annotations

import time

from ..dispatch.leadership import is_dead, this_process
from .home import Home


def unled(home: Home) -> str | None:
    """A sentence for people when turns are open and no dispatcher leads: what is shown may be old then."""
    if not home.was_used:
        return None
    if not home.reading.has_open_turns() and home.reading.next_push_due() is None:
        return None
    leader = home.reading.read_leader()
    if leader.owner is not None and not is_dead(leader.owner, here=this_process(home.places)):
        return None
    age_s = time.time() - leader.renewed_at
    since = f" (last seen {age_s:.0f} s ago)" if leader.renewed_at and age_s >= 0 else ""
    return f"Nobody is at work on this{since}: states may be old. `shunter reconcile` goes on with it."
