"""What stands in a workspace alone: what the last publication left out, and commits and files that came after it.

The look is made through a view, as a publication is, and changes nothing; see `publish` for why. Ignored files do not
count, as they are no part of a result, and nor does what is missing: nothing of it stands there.
"""

from __future__ import annotations

import os
from typing import Iterator, Optional, Tuple

from ..wire.errors import ShunterError
from ..wire.messages import Publication
from .flock import try_lock
from .gitrun import os_errors, run_git
from .pipes import unheld_by_pipes
from .snapshot import Source, private_index, really_changed, scratch_root
from .view import FOREIGN_REFS, View, is_real_directory, open_view


def find_loose(
    workspace: str, mirror: str, *, base_oid: str, published: Publication, timeout_s: float
) -> Optional[str]:
    """In words what would be lost with the workspace; None: nothing. What cannot be judged counts as something.

    Call it only when no turn of the task is under way. `timeout_s` is for each command of git.
    """
    if published.left_out:
        return "; ".join(published.left_out[:5])
    if not os.path.lexists(workspace):
        return None
    if not is_real_directory(workspace):
        return "what stands in the place of the workspace"
    parent, name = os.path.split(os.path.abspath(workspace))
    try:
        with os_errors("IO", "it could not be read"), try_lock(os.path.join(parent, f".{name}.lock")) as is_free:
            if not is_free:
                return "something is at work in it"
            with unheld_by_pipes(workspace):
                return _look_somewhere(workspace, mirror, base_oid, published, timeout_s)
    except ShunterError as exc:
        return f"it could not be looked into: {exc.text}"


def _look_somewhere(
    workspace: str, mirror: str, base_oid: str, published: Publication, timeout_s: float
) -> Optional[str]:
    """A full disk must not keep anybody from making room on it."""
    object_format = "sha256" if len(base_oid) == 64 else "sha1"
    try:
        with open_view(workspace, mirror, object_format) as view:
            return _look(view, base_oid, published, timeout_s)
    except (ShunterError, OSError) as exc:
        if isinstance(exc, ShunterError) and exc.code not in ("DISK_FULL", "DISK_UNUSABLE"):
            raise
    with open_view(workspace, mirror, object_format, scratch_parent=scratch_root()) as view:
        return _look(view, base_oid, published, timeout_s)


def _look(view: View, base_oid: str, published: Publication, timeout_s: float) -> Optional[str]:
    unseen = next(filter(None, (each.unseen(view.workspace) for each in view.worktrees)), None)
    if unseen is not None:
        return unseen
    head = view.resolve("HEAD") if view.head is not None else None
    known = {base_oid, published.head_oid, *(each.oid for each in published.kept)}
    detached = {each.head for each in view.worktrees if each.head is not None}
    heads = detached if head is None else detached | {head.oid}
    tips = None if view.tips is None else view.tips | heads
    if tips is None or not tips <= known:
        refs = [f"--exclude={FOREIGN_REFS}/*", "--glob=refs/*"]
        args = ["rev-list", "--max-count=1", *sorted(heads), *refs, "--not", *sorted(known), "--"]
        newer = run_git(args, git_dir=view.git_dir, timeout_s=timeout_s).text
        if newer:
            return f"commit {newer}, made after the last turn"
    names: Tuple[bytes, ...] = ()
    for oid, index in _standards(view, head.oid if head is not None else None, published.head_oid):
        try:
            names = _differing(view, oid, index, timeout_s)
        except ShunterError:
            if oid == published.head_oid and not index:
                raise
            continue  # an index of another form, damaged maybe: without it every file is read once
        if not names:
            return None
        if oid == published.head_oid:
            break
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{os.fsdecode(names[0])!r}{more}, changed after the last turn"


def _standards(view: View, head_oid: Optional[str], published_oid: str) -> Iterator[Tuple[str, Optional[str]]]:
    """What the files may be as in: a commit with the workspace's own index, then what was published without one."""
    if head_oid is not None and view.workspace_git_dir is not None:
        yield head_oid, os.path.join(view.workspace_git_dir, "index")
    yield published_oid, None


def _differing(view: View, oid: str, index_file: Optional[str], timeout_s: float) -> Tuple[bytes, ...]:
    view.set_head(oid)
    file = index_file or os.path.join(view.git_dir, "no-index")
    source = Source(view.git_dir, view.workspace, file, timeout_s=timeout_s)
    with private_index(source, scratch_parent=view.git_dir, seed=oid) as index:
        index.forget_flags()
        status = index.status(looks_again=False)
        changed = really_changed(status, view.workspace)
        return (*status.staged, *changed, *status.untracked, *status.nested, *index.closed)
