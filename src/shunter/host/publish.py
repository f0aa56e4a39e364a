"""Publishing: whatever state an agent left its workspace in, its work gets into the mirror.

Call it only when no process of the task is left. Files that were not committed become one commit on top of HEAD; what
HEAD has goes into the mirror and the task's branch there names it; commits that only other refs (branches, tags, the
stash, notes) or the HEAD of a linked worktree hold are kept under refs of their own. A second call changes nothing. Git
runs with a view of the workspace (see `view`), never with its own configuration, so neither hooks, filters nor signing
of the agent's making can run or stop it, and a stale lock does no harm.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Dict, Iterator, List, Optional, Set, Tuple

from ..wire.errors import ShunterError
from ..wire.ids import checked_id, checked_oid
from ..wire.messages import FileChange, KeptWork, Publication
from ..wire.record import changed as with_changes
from ..wire.record import dataclass
from .flock import hold_lock
from .gitrun import failure_line, os_errors, run_git, write_atomically
from .mirror import bring_objects, kept_prefix, move_ref, result_ref
from .pipes import unheld_by_pipes
from .refs import published_head
from .snapshot import PrivateIndex, Source, private_index, really_changed, write_tree
from .view import FOREIGN_REFS, Commit, View, is_real_directory, open_view
from .workspace import Identity

MAX_CHANGED = 1000
# A file of these filters is committed only by a git that runs them: without, it would be stored in the clear.
_CRYPT = re.compile(rb"crypt|secret|sops|vault|\bage\b", re.IGNORECASE)


@dataclass(frozen=True)
class Leftovers:
    """How the commit of left-over files is made."""

    message: str
    identity: Identity


def publish_workspace(
    workspace: str,
    mirror: str,
    *,
    task_id: str,
    base_oid: str,
    turn_base_oid: str,
    message: str,
    identity: Identity,
) -> Publication:
    """Publish; raises PUBLISH_FAILED (DISK_FULL, DISK_UNUSABLE) with the reason, and the workspace stays as it is."""
    checked_oid(turn_base_oid)
    object_format = "sha256" if len(checked_oid(base_oid)) == 64 else "sha1"
    if not is_real_directory(workspace):
        raise ShunterError("PUBLISH_FAILED", f"the workspace {workspace} is gone")
    parent, name = os.path.split(os.path.abspath(workspace))
    job = _Job(
        workspace, mirror, task_id=checked_id(task_id), base_oid=base_oid, leftovers=Leftovers(message, identity)
    )
    failing = os_errors("PUBLISH_FAILED", f"the workspace {workspace} could not be published")
    lock = hold_lock(os.path.join(parent, f".{name}.lock"))
    with failing, lock, unheld_by_pipes(workspace), open_view(workspace, mirror, object_format) as view:
        head, leftover = job.bring_in(view)
        kept = job.keep_other_work(view, head)
        job.name_worktrees(view)
    return job.describe(head, turn_base_oid, leftover_committed=leftover, kept=kept)


class _Job:
    """One publication; collects the notices."""

    def __init__(self, workspace: str, mirror: str, *, task_id: str, base_oid: str, leftovers: Leftovers) -> None:
        self.workspace = workspace
        self.mirror = mirror
        self.task_id = task_id
        self.base_oid = base_oid
        self.leftovers = leftovers
        self.notices: List[str] = []
        self.left_out: List[str] = []
        self.links: Tuple[bytes, ...] = ()
        self.made: Optional[Tuple[str, str]] = None  # the commit of left-over files, and what it stands on
        self.before = published_head(mirror, task_id)

    def bring_in(self, view: View) -> Tuple[str, bool]:
        """Get the best head into the mirror: (oid, whether left-overs became a commit).

        A HEAD that is unborn or damaged is no reason to lose the files: they are committed on the next best parent.
        """
        reasons: List[str] = []
        for parent, is_head in self._parents(view):
            view.set_head(parent.oid)
            try:
                head, leftover = self._publish_on(view, parent, warm=is_head)
            except ShunterError as exc:
                if exc.code in ("DISK_FULL", "DISK_UNUSABLE"):
                    raise
                reasons.append(f"{parent.oid}: {exc.text}")
                continue
            if not is_head:
                self.notices.append(
                    f"HEAD of the workspace was not usable; its files were committed on top of {parent.oid}"
                )
            self.notices += [f"could not publish on top of {reason}" for reason in reasons]
            return head, leftover
        if not reasons:
            reasons.append(
                f"neither HEAD of the workspace nor the task's base can be read with {self.mirror}; a further turn"
                f" (shunter say {self.task_id} …) sends the base again and brings home what stands in the workspace"
            )
        raise ShunterError("PUBLISH_FAILED", "the result could not be published: " + "; ".join(reasons))

    def _parents(self, view: View) -> Iterator[Tuple[Commit, bool]]:
        head = view.resolve("HEAD") if view.head is not None else None
        seen = {head}
        if head is not None:
            yield head, True
        for name in (result_ref(self.task_id), self.base_oid, self.before):
            commit = view.resolve(name) if name is not None else None
            if commit is not None and commit not in seen:
                seen.add(commit)
                yield commit, False

    def _publish_on(self, view: View, parent: Commit, *, warm: bool) -> Tuple[str, bool]:
        cold = Source(view.git_dir, self.workspace, os.path.join(view.git_dir, "no-index"))
        if warm and view.workspace_git_dir is not None:
            index = os.path.join(view.workspace_git_dir, "index")
            try:
                return self._publish_with(view, with_changes(cold, index=index), parent)
            except ShunterError as exc:
                if exc.code in ("DISK_FULL", "DISK_UNUSABLE"):
                    raise
        # An index of another form (split, damaged) is left alone; without it every file is read once.
        return self._publish_with(view, cold, parent)

    def _publish_with(self, view: View, source: Source, parent: Commit) -> Tuple[str, bool]:
        """Commit what HEAD lacks, bring it in, then tell the workspace: it borrows the new objects from the mirror."""
        with private_index(source, scratch_parent=view.git_dir, seed=parent.oid) as index:
            left_out: List[str] = []
            listing = index.forget_flags()
            tree = self._leftover_tree(index, left_out, has_attributes=listing.has_attributes)
            committed = tree is not None and tree != parent.tree
            head = self._commit(view, tree, parent.oid) if tree is not None and committed else parent.oid
            self.made = (head, parent.oid) if committed else None
            self._bring(view, head)
            self.left_out, self.links = left_out, listing.links
            if committed:
                self._update_workspace(view, head, index)
            return head, committed

    def _leftover_tree(self, index: PrivateIndex, left_out: List[str], *, has_attributes: bool) -> Optional[str]:
        """Tree of the files as they are; None when they are as committed, or all gone."""
        status = index.status(looks_again=False)
        attributes = has_attributes or self._attributes_above([*status.changed, *status.untracked])
        if attributes:
            status = with_changes(status, changed=really_changed(status, self.workspace))
        replaced = [path for path in (*status.deleted, *status.changed) if self._is_repository(path)]
        left_out += [_nested_words(os.fsdecode(path)) for path in (*status.nested, *replaced)]
        left_out += [f"a directory that cannot be read: {os.fsdecode(path)!r}" for path in index.closed]
        if status.is_clean and not status.untracked:
            return None
        if os.listdir(self.workspace) in ([], [".git"]):
            self.notices.append("every file is missing from the working tree; that was not committed")
            return None
        hidden = self._encrypted(index, [*status.changed, *status.untracked]) if attributes else set()
        kept = with_changes(status, changed=tuple(path for path in status.changed if path not in hidden))
        written = write_tree(index, choose=lambda path: path not in hidden, status=kept)
        left_out += [f"its filter is not available here: {os.fsdecode(path)!r}" for path in sorted(hidden)]
        left_out += [f"not readable: {os.fsdecode(path)!r}" for path in written.unreadable]
        return written.tree

    def _attributes_above(self, paths: List[bytes]) -> bool:
        """Whether git would find a .gitattributes for any of these, ignored ones included."""
        above = {b""}
        for path in paths:
            parent = os.path.dirname(path)
            while parent not in above:
                above.add(parent)
                parent = os.path.dirname(parent)
        root = os.fsencode(self.workspace)
        return any(os.path.lexists(os.path.join(root, each, b".gitattributes")) for each in above)

    def _encrypted(self, index: PrivateIndex, paths: List[bytes]) -> Set[bytes]:
        stdin = b"".join(path + b"\0" for path in paths)
        fields = index.git(["check-attr", "-z", "--stdin", "filter"], stdin=stdin).out.split(b"\0")
        return {path for path, value in zip(fields[0::3], fields[2::3]) if _CRYPT.search(value)}

    def _commit(self, view: View, tree: str, parent: str) -> str:
        names = {"NAME": self.leftovers.identity.name, "EMAIL": self.leftovers.identity.email}
        env = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER") for part, value in names.items()}
        args = ["commit-tree", "--no-gpg-sign", "-p", parent, tree]
        message = self.leftovers.message.encode("utf-8", "replace").rstrip() + b"\n"
        return run_git(args, git_dir=view.git_dir, stdin=message, env=env).text

    def _bring(self, view: View, head: str) -> None:
        """What the mirror lacks of the head, then its ref. Bases and earlier results are whole there."""
        if head == self.before:
            return
        if head != self.base_oid:
            bring_objects(self.mirror, view.git_dir, head, self._known())
        move_ref(self.mirror, result_ref(self.task_id), head)

    def _known(self) -> List[str]:
        return [self.base_oid] if self.before is None else [self.base_oid, self.before]

    def _update_workspace(self, view: View, head: str, index: PrivateIndex) -> None:
        """Let the workspace's own branch and index know the commit, so that the next turn starts clean.

        The two files are put in place by hand, because git would run with the agent's configuration here. The
        repository was made by us with plain ref files; where it is not so any more, it is left alone.
        """
        git_dir = view.workspace_git_dir
        head_file = (
            "HEAD" if view.head is None or not view.head.startswith(b"ref: ") else os.fsdecode(view.head[5:].strip())
        )
        if git_dir is None or not _is_plain(git_dir, head_file):
            self.notices.append("the workspace does not know the commit of its left-over files")
            return
        for lock in ("index.lock", "HEAD.lock", head_file + ".lock"):  # no process of the task is left to own them
            try:
                os.unlink(os.path.join(git_dir, lock))
            except FileNotFoundError:
                pass
        os.makedirs(os.path.dirname(os.path.join(git_dir, head_file)), exist_ok=True)
        temporary = os.path.join(git_dir, "shunter-new-ref")
        write_atomically(os.path.join(git_dir, head_file), head.encode() + b"\n", temporary=temporary)
        os.replace(index.path, os.path.join(git_dir, "index"))

    def keep_other_work(self, view: View, head: str) -> Tuple[KeptWork, ...]:
        known = {head, *(self.made or ()), *self._known()}
        detached = {each.head: each.name for each in view.worktrees if each.head is not None and each.head not in known}
        if view.tips is not None and view.tips <= known and not detached:
            return ()
        args = ["for-each-ref", "--no-merged=" + head, "--format=%(objectname) %(refname)"]
        listed = run_git(args, git_dir=view.git_dir, allowed=())
        if listed.status != 0:
            self.left_out.append(f"what other refs name, for they could not be listed: {failure_line(listed.err)}")
        names: Dict[str, str] = {}
        for line in listed.out.splitlines():
            oid, _, name = os.fsdecode(line).partition(" ")
            if not name.startswith(FOREIGN_REFS + "/"):
                names.setdefault(oid, name)
        for oid, name in detached.items():
            args = ["rev-list", "--max-count=1", oid, "--not", head, "--"]
            beyond = run_git(args, git_dir=view.git_dir, allowed=())
            if beyond.out or beyond.status != 0:  # one that is damaged is told when it cannot be kept
                names.setdefault(oid, f"worktrees/{name}/HEAD")
        if not names:
            return ()
        prefix = kept_prefix(self.task_id)
        standing = run_git(["for-each-ref", "--format=%(objectname) %(refname)", prefix], git_dir=self.mirror)
        refs = dict(line.split(" ", 1) for line in standing.out.decode().splitlines())
        number = max((int(ref.rpartition("/")[2]) for ref in refs.values()), default=0)
        kept: List[KeptWork] = []
        for oid, name in names.items():
            if oid not in refs:
                number += 1
                refs[oid] = f"{prefix}{number}"
                try:
                    bring_objects(self.mirror, view.git_dir, oid, [*self._known(), head])
                    move_ref(self.mirror, refs[oid], oid)
                except ShunterError as exc:
                    self.notices.append(f"{name} could not be kept: {exc.text}")
                    continue
            kept.append(KeptWork(name, refs[oid], oid))
        return tuple(kept)

    def name_worktrees(self, view: View) -> None:
        """Their files are not judged: a worktree may stand anywhere and be of any size."""
        for worktree in view.worktrees:
            words, place = worktree.unseen(self.workspace), worktree.place(self.workspace)
            is_named = place is not None and (_nested_words(place) in self.left_out or os.fsencode(place) in self.links)
            if words is not None and not is_named:
                self.left_out.append(words)

    def describe(
        self, head: str, turn_base_oid: str, *, leftover_committed: bool, kept: Tuple[KeptWork, ...]
    ) -> Publication:
        behind, ahead = self._distance(self.base_oid, head)
        of_turn = ahead if turn_base_oid == self.base_oid else self._distance(turn_base_oid, head)[1]
        changed = compare(self.mirror, self.base_oid, head)
        return Publication(
            head_oid=head,
            commits=ahead,
            turn_commits=of_turn,
            leftovers_committed=leftover_committed,
            rewritten=behind > 0,
            files=tuple(changed[:MAX_CHANGED]),
            files_total=len(changed),
            insertions=sum(each.added or 0 for each in changed),
            deletions=sum(each.deleted or 0 for each in changed),
            kept=kept,
            left_out=tuple(dict.fromkeys([*self.left_out, *self._embedded()])),
            notices=tuple(dict.fromkeys(self.notices)),
        )

    def _embedded(self) -> List[str]:
        """Repositories inside the workspace that the result only names: their files and commits stand here alone."""
        links = [path for path in self.links if self._holds(path)]
        return [f"what is inside {os.fsdecode(path)!r}, a repository of its own" for path in links]

    def _is_repository(self, path: bytes) -> bool:
        return os.path.lexists(os.path.join(os.fsencode(self.workspace), path, b".git"))

    def _holds(self, path: bytes) -> bool:
        full = os.path.join(os.fsencode(self.workspace), path)
        try:
            return stat.S_ISDIR(os.lstat(full).st_mode) and bool(os.listdir(full))
        except OSError:
            return False

    def _distance(self, old: str, new: str) -> Tuple[int, int]:
        """Commits only in the old one, commits only in the new one."""
        if old == new:
            return 0, 0
        if (new, old) == self.made:
            return 0, 1
        args = ["rev-list", "--left-right", "--count", f"{old}...{new}", "--"]
        left, right = run_git(args, git_dir=self.mirror, code="PUBLISH_FAILED").out.split()
        return int(left), int(right)


def compare(git_dir: str, old: str, new: str) -> List[FileChange]:
    """Files that differ between two commits, by path; renames are shown as a removal and an addition."""
    if old == new:
        return []
    args = ["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv", old, new]
    fields = iter(run_git(args, git_dir=git_dir, code="PUBLISH_FAILED").out.split(b"\0"))
    kinds: Dict[bytes, str] = {}
    changed: List[FileChange] = []
    for field in fields:
        if field.startswith(b":"):
            kinds[next(fields)] = field.rsplit(b" ", 1)[1].decode()
        elif field:
            added, removed, path = field.split(b"\t", 2)
            binary = added == b"-"
            counts = (None, None) if binary else (int(added), int(removed))
            changed.append(FileChange(os.fsdecode(path), kinds.get(path, "M"), *counts))
    return changed


def _nested_words(path: str) -> str:
    return f"a repository of its own: {path!r}"


def _is_plain(git_dir: str, ref: str) -> bool:
    """Whether a ref of this repository is a plain file below it, with no link or shared directory on the way."""
    if os.path.lexists(os.path.join(git_dir, "commondir")) or ".." in ref.split("/"):
        return False
    path = git_dir
    for part in ref.split("/")[:-1]:
        path = os.path.join(path, part)
        if os.path.lexists(path) and not is_real_directory(path):
            return False
    return ref == "HEAD" or (ref.startswith("refs/heads/") and not os.path.isdir(os.path.join(git_dir, ref)))
