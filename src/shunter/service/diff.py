"""The changes of a task, read from home's copy of its result; no host is asked."""

from __future__ import annotations

from ..dispatch.delivery import find_checkout
from ..git.repository import holds_commit
from ..git.transfer import open_transfer
from ..host.gitrun import run_git
from ..wire.errors import ShunterError
from .home import Home
from .view import without_result


def read_diff(home: Home, prefix: str, *, stat: bool, checkout: str | None = None) -> bytes:
    """git's own bytes, without colour, external diff drivers or text conversion; empty when nothing changed.

    `checkout`: where the result was fetched to, when the one that the task came from has moved.
    """
    task = home.reading.find_task(prefix)
    turns = home.reading.load_turns(task.id)
    published = [turn for turn in turns if turn.outcome and turn.outcome.publication]
    if not published:
        raise without_result(task, turns[-1])
    publication = published[-1].outcome.publication if published[-1].outcome else None
    if publication is None or not publication.commits:
        return b""
    if task.fetched_oid != publication.head_oid:
        raise ShunterError("FETCH_FAILED", "the result is not at home yet", hint=f"shunter fetch {task.id}")
    repo = find_checkout(home.reading, home.places, task, checkout)
    transfer = open_transfer(str(home.places.transfer_dir), repo)
    if not holds_commit(transfer.path, publication.head_oid):
        raise ShunterError("FETCH_FAILED", f"{repo.root} does not have the result", hint=f"shunter fetch {task.id}")
    form = ["--stat=100"] if stat else ["--patch", "--binary"]
    args = ["diff", "--no-color", "--no-ext-diff", "--no-textconv", *form, task.base_oid, publication.head_oid, "--"]
    return run_git(args, git_dir=transfer.path).out
