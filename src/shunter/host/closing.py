"""Closing a task on this host: its workspace, its jobs' files and its refs go, the ledger's rows stay."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from ..wire.codec import loads
from ..wire.errors import ShunterError
from ..wire.messages import CloseAsk, Closed, End, LastPublished, Publication
from .durable import remove
from .flock import hold_lock
from .layout import Layout
from .ledger import Ledger
from .loose import find_loose
from .outbox import UNDELIVERED
from .refs import drop_task_refs
from .remove import remove_tree

LOOK_LIMIT_S = 60.0


def close_task(layout: Layout, ledger: Ledger, ask: CloseAsk) -> Closed:
    """Remove the workspace, the jobs' files and the task's refs. Refused while an attempt is not ended.

    The head that home has must be the one that the last turn published, unless `delivered_oid` is None (discard).
    """
    if ledger.find_task(ask.task_id) is None and not os.path.isdir(layout.task(ask.task_id)):
        return Closed(removed=True)  # another data root than the task's, or a ledger that was lost: nothing is here
    with hold_lock(layout.task_lock(ask.task_id)):
        attempts = ledger.attempts_of(ask.task_id)
        if any(row["state"] == "accepted" for row in attempts):
            raise ShunterError("TASK_BUSY", f"task {ask.task_id} has a turn that is not over on this host")
        if ask.delivered_oid is not None:
            _require_delivered(layout, ledger, ask, attempts)
            _require_pushed(ledger, ask.task_id)
        kept = [f"{each.path}: {each.reason}" for each in remove_tree(layout.workspace(ask.task_id))]
        for row in attempts:
            remove_tree(layout.job(row["attempt_id"]))
            for kind in ("launched", "exited", "completed", "failed"):
                remove(layout.signal(row["attempt_id"], kind))
        if not kept:
            remove_tree(layout.task(ask.task_id))
            drop_task_refs(layout.mirror(ask.project_id), ask.task_id)
        ledger.drop_push(ask.task_id, actor=ask.actor)
        ledger.close_task(ask.task_id, actor=ask.actor, detail="discard" if ask.delivered_oid is None else "delivered")
    return Closed(removed=not kept, kept=tuple(kept))


def last_published(attempts: List[Dict[str, Any]]) -> LastPublished:
    """Of a task's attempts, in the order of acceptance. Raises LEDGER_DAMAGED."""
    for row in reversed(attempts):
        if row["end"] is not None:
            publication = loads(End, row["end"], where="ledger", code="LEDGER_DAMAGED").publication
            if publication is not None:
                return LastPublished(row["attempt_id"], publication)
    return LastPublished(None, None)


def find_loose_work(
    layout: Layout, ledger: Ledger, task_id: str, published: Publication, *, timeout_s: float
) -> Optional[str]:
    """What of a task would be lost with its workspace, although its last turn published; None: nothing."""
    row = ledger.find_task(task_id)
    workspace = layout.workspace(task_id)
    if row is None:
        return "a workspace that no record tells of" if os.path.isdir(workspace) else None
    mirror = layout.mirror(row["project_id"])
    return find_loose(workspace, mirror, base_oid=row["base_oid"], published=published, timeout_s=timeout_s)


def _require_delivered(layout: Layout, ledger: Ledger, ask: CloseAsk, attempts: List[Dict[str, Any]]) -> None:
    published = last_published(attempts).publication
    if published is not None:
        if published.head_oid != ask.delivered_oid:
            text = f"home has {ask.delivered_oid}, the last turn published {published.head_oid}"
            raise ShunterError("RESULT_UNDELIVERED", text, hint=f"shunter fetch {ask.task_id}, or close --discard")
        loose = find_loose_work(layout, ledger, ask.task_id, published, timeout_s=LOOK_LIMIT_S)
        if loose is not None:
            place = layout.workspace(ask.task_id)
            hint = f"shunter say {ask.task_id} … publishes it; or look into {place}, then close --discard"
            raise ShunterError("RESULT_UNDELIVERED", f"only in the workspace: {loose}", hint=hint)
    elif attempts and os.path.isdir(layout.workspace(ask.task_id)):
        raise ShunterError(
            "RESULT_UNDELIVERED",
            "no turn of this task published its work",
            hint=f"shunter fetch {ask.task_id} tries again, shunter say {ask.task_id} … goes on; or close --discard",
        )


def _require_pushed(ledger: Ledger, task_id: str) -> None:
    row = ledger.find_push(task_id)
    if row is not None and row["state"] in UNDELIVERED:
        text = f"branch {row['branch']} is not on {row['url']} yet: {row['error_text'] or 'not tried'}"
        raise ShunterError("RESULT_UNDELIVERED", text, hint=f"shunter publish {task_id} --retry, or close --discard")
