"""The outbox: results that go to an origin besides home. An entry is written with the end of the turn, in the ledger.

Whoever leads at home asks for it to be carried out, as often as it takes; that needs no slot. It is safe to repeat: the
branch is only ever made, or moved on from a commit that this task itself pushed, and a lost answer is found out by
looking where the branch stands.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

from ..wire.errors import ShunterError
from ..wire.messages import PushAsk, Pushed
from .flock import hold_lock
from .gitrun import run_git
from .layout import Layout
from .ledger import Ledger
from .origin import LOOK_LIMIT_S, Origin, open_origin, origin_lock, push_branch

UNDELIVERED = ("pending", "failed", "refused")


def carry_out(layout: Layout, ledger: Ledger, ask: PushAsk) -> Pushed:
    """Push what the task's last turn published, unless that was done; what came of it is recorded and answered."""
    row = ledger.find_push(ask.task_id)
    if row is None:
        return Pushed("none")
    if row["state"] in UNDELIVERED:
        with hold_lock(origin_lock(layout, row["url"])) as lock:
            row = ledger.find_push(ask.task_id) or row
            if row["state"] in UNDELIVERED:
                _try(layout, ledger, row, lock, actor=ask.actor)
    return read_push(ledger, ask.task_id)


def read_push(ledger: Ledger, task_id: str) -> Pushed:
    row = ledger.find_push(task_id)
    if row is None:
        return Pushed("none")
    return Pushed(
        state=row["state"],
        url=row["url"],
        branch=row["branch"],
        wanted_oid=row["wanted_oid"],
        pushed_oid=row["pushed_oid"],
        tries=row["tries"],
        error_code=row["error_code"],
        error_text=row["error_text"],
        hint=row["hint"],
    )


def _try(layout: Layout, ledger: Ledger, row: Dict[str, Any], lock: int, *, actor: str) -> None:
    wanted = row["wanted_oid"]
    try:
        _push(layout, ledger, row, wanted, lock)
    except ShunterError as exc:
        state = "refused" if exc.code in ("PUBLISH_REFUSED", "BRANCH_TAKEN") else "failed"
        ledger.record_push(row["task_id"], wanted, state=state, error=exc, actor=actor)
        return
    ledger.record_push(row["task_id"], wanted, state="pushed", error=None, actor=actor)


def _push(layout: Layout, ledger: Ledger, row: Dict[str, Any], wanted: str, lock: int) -> None:
    mirror, branch, base = layout.mirror(row["project_id"]), row["branch"], row["base_oid"]
    origin = open_origin(layout, row["url"])
    origin.keep = (lock,)  # a push that outlives this helper is waited for, not done beside
    ref = "refs/heads/" + branch
    _require_own(mirror, base, wanted)
    stands = origin.heads(ref).get(ref)
    if stands == wanted:
        return
    ours = {row["pushed_oid"], row["trying_oid"]} - {None}
    if stands is not None and stands not in ours:
        raise _taken(origin, branch, stands)
    if stands is not None and not _is_ancestor(mirror, stands, wanted):
        text = f"what the task has now does not continue branch {branch} of {origin.url}, which stands at {stands}"
        raise ShunterError("PUBLISH_REFUSED", text, hint="it is never forced: take the branch away there, then --retry")
    ledger.note_push_try(row["task_id"], wanted)  # before anything goes out: an answer may be lost
    try:
        push_branch(origin, mirror, branch=branch, oid=wanted, expected=stands)
    except ShunterError as exc:
        if exc.code == "BRANCH_TAKEN":  # it moved between the look and the push, maybe by an earlier try of ours
            now = origin.heads(ref).get(ref)
            if now == wanted:
                return
            raise _taken(origin, branch, now) from exc
        raise


def _require_own(mirror: str, base: str, wanted: str) -> None:
    """Only what the task itself committed goes out, on top of a base that origin has."""
    if not _is_ancestor(mirror, base, wanted):
        text = (
            "the base is no ancestor of the result: the agent rewrote history, so other commits than its own would go"
        )
        raise ShunterError("PUBLISH_REFUSED", text, hint="look at the result, then push it yourself")


def _is_ancestor(mirror: str, old: str, new: str) -> bool:
    done = run_git(["merge-base", "--is-ancestor", old, new], git_dir=mirror, allowed=(), timeout_s=LOOK_LIMIT_S)
    if done.status in (0, 1):
        return done.status == 0
    return False  # one of them is not here at all


def _taken(origin: Origin, branch: str, stands: Optional[str]) -> ShunterError:
    where = f"stands at {stands}, which is not of this task" if stands else "is another one by now"
    hint = "take it away there and `shunter publish --retry`, or push the result yourself under another name"
    return ShunterError("BRANCH_TAKEN", f"branch {branch} of {origin.url} {where}; it was left alone", hint=hint)
