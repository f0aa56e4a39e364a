"""The tree of a working tree as it is now, through a private copy of the index; the repository itself is only read.

A copy of the real index keeps its stat cache, so only changed files are read. The copy keeps the modification time of
the original to the nanosecond: git looks again at files that are as new as the index, and with a newer time an edit of
the same size in the same tick would be missed.

`git status` finds what differs (it never looks through a symbolic link, knows sparse checkouts and names nested
repositories), `update-index` takes over exactly the chosen paths. `git add -A` is not used: it stops at a nested
repository without a commit and, in a sparse checkout, at files outside the cone.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..wire.errors import ShunterError
from ..wire.record import dataclass
from .durable import make_scratch
from .gitrun import GitResult, alternates_line, os_errors, run_git
from .remove import remove_tree

_NULL_MODE = b"000000"


# Entries of `ls-files -v --stage -z`: flag, mode, object id and stage, a tab, the path.
_FLAGGED = re.compile(rb"(?:\A|(?<=\0))([a-zS]) [^\t]*\t([^\0]*)")
_LINK = re.compile(rb"(?:\A|(?<=\0))[A-Za-z?] 160000 [^\t]*\t([^\0]*)")
_ATTRIBUTES = re.compile(rb"[/\t]\.gitattributes\0")
_CLOSED = re.compile(rb"could not open directory '([^']*)'")


@dataclass(frozen=True)
class Source:
    """A working tree and the repository that it is looked at with.

    `objects_dir`: where new objects go instead of the repository's own (None: there); `lender_dirs`: further object
    directories that may be read. `timeout_s`: of each command of git, which then fails.
    """

    git_dir: str
    work_tree: str
    index: str
    user_config: bool = False
    own: bool = True
    objects_dir: Optional[str] = None
    lender_dirs: Tuple[str, ...] = ()
    timeout_s: Optional[float] = None


@dataclass(frozen=True)
class Status:
    """What `git status` saw, as bytes relative to the working tree's root.

    `staged` differ between HEAD and index, `changed` and `deleted` between index and files, `unmerged` are among both.
    `changed_from` are the ids that the index has for the `changed`, b"" for an unmerged one or another mode. `nested`
    are directories that hold a repository of their own.
    """

    head: Optional[str]
    staged: Tuple[bytes, ...]
    changed: Tuple[bytes, ...]
    deleted: Tuple[bytes, ...]
    changed_from: Tuple[bytes, ...]
    unmerged: Tuple[bytes, ...]
    untracked: Tuple[bytes, ...]
    nested: Tuple[bytes, ...]

    @property
    def is_clean(self) -> bool:
        return not (self.staged or self.changed or self.deleted)

    @property
    def dirty_count(self) -> int:
        """Tracked paths that differ from HEAD in any way."""
        return len({*self.staged, *self.changed, *self.deleted})


@dataclass(frozen=True)
class Listing:
    """Of an index: paths that name a commit of another repository, and whether any .gitattributes is among them."""

    links: Tuple[bytes, ...]
    has_attributes: bool


class PrivateIndex:
    """A copy of the source's index in a directory of our own; use it through `private_index`."""

    def __init__(self, source: Source, path: str) -> None:
        self.source = source
        self.path = path
        self.closed: Tuple[bytes, ...] = ()  # directories that the last status could not look into
        self._env: Dict[str, str] = {"GIT_INDEX_FILE": path}
        if source.objects_dir is not None:
            self._env["GIT_OBJECT_DIRECTORY"] = source.objects_dir
        if source.lender_dirs:
            self._env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = ":".join(map(alternates_line, source.lender_dirs))

    def git(
        self,
        args: Sequence[str],
        *,
        stdin: Optional[bytes] = None,
        env: Optional[Mapping[str, str]] = None,
        config: Sequence[str] = (),
        allowed: Tuple[int, ...] = (0,),
        optional_locks: bool = True,
    ) -> GitResult:
        # The index is ours alone, so git may write its refreshed stat cache into it: the next look is cheaper.
        return run_git(
            args,
            git_dir=self.source.git_dir,
            work_tree=self.source.work_tree,
            stdin=stdin,
            env={**self._env, **(env or {})},
            config=config,
            user_config=self.source.user_config,
            own=self.source.own,
            optional_locks=optional_locks,
            timeout_s=self.source.timeout_s,
            allowed=allowed,
        )

    def status(self, *, untracked: bool = True, looks_again: bool = True) -> Status:
        """`looks_again`: the refreshed stat cache is worth writing."""
        found = self.git(status_args("all" if untracked else "no"), optional_locks=looks_again)
        self.closed = tuple(each[1] for each in _CLOSED.finditer(found.err))
        return parse_status(found.out)

    def forget_flags(self) -> Listing:
        """Look at every file again, also at those that somebody told git not to look at; what the index holds."""
        listed = self.git(["ls-files", "-v", "--stage", "-z"]).out
        assumed = [entry[2] for entry in _FLAGGED.finditer(listed) if entry[1].islower()]
        skipped = [entry[2] for entry in _FLAGGED.finditer(listed) if entry[1] in b"Ss"]
        root = os.fsencode(self.source.work_tree)
        skipped = [path for path in skipped if os.path.lexists(os.path.join(root, path))]  # of a sparse tree the rest
        for option, paths in (("--no-assume-unchanged", assumed), ("--no-skip-worktree", skipped)):
            if paths:
                self.git(["update-index", option, "-z", "--stdin"], stdin=b"".join(path + b"\0" for path in paths))
        links = tuple(entry[1] for entry in _LINK.finditer(listed))
        return Listing(links, _ATTRIBUTES.search(listed) is not None)

    def remove(self, paths: Sequence[bytes], *, oid_digits: int) -> None:
        """Take paths out of the index whatever stands in the working tree, be it a link where a directory was."""
        if paths:
            lines = b"".join(b"0 %s\t%s\0" % (b"0" * oid_digits, path) for path in paths)
            self.git(["update-index", "-z", "--index-info"], stdin=lines)

    def add(self, paths: Sequence[bytes]) -> Tuple[bytes, ...]:
        """Take the files at these paths into the index; returns the paths that could not be read."""
        if not paths:
            return ()
        result = self._add(paths, allowed=())
        if result.status == 0:
            return ()
        unreadable = tuple(path for path in paths if not self._is_readable(path))
        self._add([path for path in paths if path not in set(unreadable)], allowed=(0,))
        return unreadable

    def _add(self, paths: Sequence[bytes], *, allowed: Tuple[int, ...]) -> GitResult:
        args = ["update-index", "-z", "--add", "--remove", "--replace", "--stdin"]
        return self.git(args, stdin=b"".join(path + b"\0" for path in paths), allowed=allowed)

    def _is_readable(self, path: bytes) -> bool:
        full = os.path.join(os.fsencode(self.source.work_tree), path)
        try:
            mode = os.lstat(full).st_mode
        except OSError:
            return True  # gone meanwhile: nothing to read
        if stat.S_ISREG(mode):
            return os.access(full, os.R_OK)
        return stat.S_ISLNK(mode) or stat.S_ISDIR(mode)

    def write_tree(self) -> str:
        return self.git(["write-tree"]).text


def scratch_root() -> str:
    """Where temporary files of this account go."""
    import tempfile

    return tempfile.gettempdir()


@contextlib.contextmanager
def private_index(
    source: Source, *, scratch_parent: Optional[str] = None, seed: str = "HEAD"
) -> Iterator[PrivateIndex]:
    """Copy the index into a temporary directory, or fill one from commit `seed` when the repository has none."""
    with os_errors("IO", "no private index could be made"):
        directory = make_scratch(scratch_parent or scratch_root(), "shunter-index-")
    try:
        index = PrivateIndex(source, os.path.join(directory, "index"))
        with os_errors("IO", f"the index {source.index} could not be copied"):
            copied = copy_index(source.index, index.path)
        if not copied:
            index.git(["read-tree", seed])
        yield index
    finally:
        remove_tree(directory)


def copy_index(source: str, target: str) -> bool:
    """Copy an index with its modification time; False when there is none. A lock beside it does not matter: an index
    is only ever replaced by rename, so what is opened is whole."""
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        before = os.fstat(file.fileno())
        if not stat.S_ISREG(before.st_mode):
            raise ShunterError("IO", f"{source} is no regular file")
        with open(target, "wb") as copy:
            for block in iter(lambda: file.read(1 << 20), b""):
                copy.write(block)
    os.utime(target, ns=(before.st_mtime_ns, before.st_mtime_ns))
    return True


def status_args(untracked: str) -> List[str]:
    """Arguments of a status that never descends into submodules (that would write their index) nor follows renames."""
    return [
        *("status", "-z", "--porcelain=v2", "--branch", "--no-ahead-behind", "--no-renames"),
        *("--ignore-submodules=dirty", "--untracked-files=" + untracked),
    ]


def parse_status(out: bytes) -> Status:
    """Read `git status -z --porcelain=v2 --branch --no-renames`; raises GIT_FAILED on a line of another form."""
    head: Optional[str] = None
    staged: List[bytes] = []
    changed: List[bytes] = []
    deleted: List[bytes] = []
    changed_from: List[bytes] = []
    unmerged: List[bytes] = []
    untracked: List[bytes] = []
    nested: List[bytes] = []
    for line in out.split(b"\0"):
        kind = line[:2]
        if kind == b"1 ":
            _, xy, _, _, index_mode, mode, _, recorded, path = line.split(b" ", 8)
            if xy[:1] != b".":
                staged.append(path)
            if xy[1:] != b".":
                if mode == _NULL_MODE:
                    deleted.append(path)
                else:
                    changed.append(path)
                    changed_from.append(recorded if mode == index_mode else b"")
        elif kind == b"u ":
            _, _, _, _, _, _, mode, _, _, _, path = line.split(b" ", 10)
            unmerged.append(path)
            if mode == _NULL_MODE:
                deleted.append(path)
            else:
                changed.append(path)
                changed_from.append(b"")
        elif kind == b"? ":
            (nested if line.endswith(b"/") else untracked).append(line[2:].rstrip(b"/"))
        elif line.startswith(b"# branch.oid "):
            oid = line[13:].decode()
            head = None if oid == "(initial)" else oid
        elif line and not line.startswith(b"# "):
            raise ShunterError("GIT_FAILED", f"git status gave a line of unknown form: {line[:80]!r}")
    found = (staged, changed, deleted, changed_from, unmerged, untracked, nested)
    return Status(head, *(tuple(each) for each in found))


@dataclass(frozen=True)
class Snapshot:
    """A written tree. `status` is what was found first; `captured` the untracked paths that are in the tree."""

    tree: str
    status: Status
    captured: Tuple[bytes, ...]
    unreadable: Tuple[bytes, ...]


def write_tree(index: PrivateIndex, *, choose: Callable[[bytes], bool], status: Optional[Status] = None) -> Snapshot:
    """Write the tree of all tracked files as they are now plus the untracked ones that `choose` accepts."""
    found = index.status() if status is None else status
    captured = tuple(path for path in found.untracked if choose(path))
    index.remove(found.deleted, oid_digits=len(found.head or "0" * 40))
    unreadable = index.add([*found.changed, *captured])
    return Snapshot(index.write_tree(), found, captured, unreadable)


def really_changed(status: Status, work_tree: str) -> Tuple[bytes, ...]:
    """The `changed` paths less those whose bytes are exactly what the index has.

    Where stored line endings contradict the attributes, git calls an untouched file modified; nobody changed it. So
    there is nothing to ask where no attributes are.
    """
    root = os.fsencode(work_tree)
    pairs = zip(status.changed, status.changed_from)
    return tuple(path for path, oid in pairs if not _has_content(os.path.join(root, path), oid))


def _has_content(path: bytes, oid: bytes) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):  # a directory, say: a repository stands where a file was
        os.close(descriptor)
        return False
    with os.fdopen(descriptor, "rb") as file:
        import hashlib  # only here: loading OpenSSL takes its time

        digest = hashlib.new(
            "sha256" if len(oid) == 64 else "sha1", b"blob %d\0" % about.st_size, usedforsecurity=False
        )
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest().encode() == oid
