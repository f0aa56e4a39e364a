"""A task's refs in its mirror: the pinned base, the published result, work that was kept."""

from __future__ import annotations

import os
from typing import Optional

from ..wire.errors import ShunterError
from ..wire.ids import checked_oid
from .gitrun import run_git
from .mirror import base_ref, kept_prefix, result_ref


def published_head(mirror: str, task_id: str) -> Optional[str]:
    """The object id that the last turn published; None before that.

    Refs move last in a mirror, so what this names is complete there. A mirror is ours and has its refs as plain
    files, which are read without git unless somebody has packed them.
    """
    ref = result_ref(task_id)
    try:
        with open(os.path.join(mirror, ref), "rb") as file:
            return checked_oid(file.read(65).decode("ascii", "replace").rstrip("\n"))
    except FileNotFoundError:
        if not os.path.exists(os.path.join(mirror, "packed-refs")):
            return None
    except ShunterError:
        pass  # a power cut may have left an empty file; git says what it makes of that
    found = run_git(["rev-parse", "--verify", "--quiet", ref], git_dir=mirror, allowed=(0, 1, 128))
    return found.text if found.status == 0 else None


def drop_task_refs(mirror: str, task_id: str) -> None:
    """Forget a closed task; its objects stay, because other workspaces may borrow them. Repeating is harmless."""
    if not os.path.isdir(mirror):
        return
    names = (base_ref(task_id), result_ref(task_id), kept_prefix(task_id))
    found = run_git(["for-each-ref", "--format=delete %(refname)", *names], git_dir=mirror)
    if found.out:
        run_git(["update-ref", "--stdin"], git_dir=mirror, stdin=found.out)
