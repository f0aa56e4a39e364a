"""The bare mirror of a project on a host: bases come in, results are published, workspaces borrow from it.

Refs: `refs/shunter/bases/<task>` (pushed from home), `refs/heads/task/<task>` (published results) and
`refs/shunter/kept/<task>/<n>` (other finished work of a task). A mirror is append-only, because a workspace dies
when an object that it borrows is pruned: nothing here ever collects garbage, only retention may.

Pushes are limited twice: receive-pack itself refuses hidden refs, and a pre-receive hook admits only the base of the
task that the connection was opened for.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import IO, List, NoReturn, Sequence, Tuple, Union

from ..wire.errors import ShunterError
from ..wire.ids import checked_id, checked_oid
from .durable import make_scratch, remove
from .flock import hold_lock
from .gitrun import GitResult, git_argv, git_environment, os_errors, raise_failed, run_git, write_atomically, write_ref
from .remove import remove_tree

STALE_AFTER_S = 86_400.0
LOCK_HELD_S = 10.0  # longer than any git writes one ref

# Faults that old but healthy histories are full of; they are no reason to refuse a project.
_TOLERATED = (
    *("badDate", "badDateOverflow", "badEmail", "badFilemode", "badTimezone", "emptyName", "fullPathname"),
    *("missingEmail", "missingNameBeforeEmail", "missingSpaceBeforeDate", "missingSpaceBeforeEmail"),
    *("multipleAuthors", "nullSha1", "zeroPaddedDate", "zeroPaddedFilemode"),
)

HOOK = b"""#!/bin/sh
# Written by shunter and checked before each push: only the base of this connection's task may be created or updated.
[ -n "$SHUNTER_TASK" ] || { echo "shunter: no task was named" >&2; exit 1; }
while read -r _ new ref; do
  [ "$ref" = "refs/shunter/bases/$SHUNTER_TASK" ] || { echo "shunter: $ref may not be written" >&2; exit 1; }
  case $new in *[!0]*) ;; *) echo "shunter: $ref may not be deleted" >&2; exit 1 ;; esac
done
"""

PROVED = "shunter-proved"


def base_ref(task_id: str) -> str:
    return "refs/shunter/bases/" + checked_id(task_id)


def result_ref(task_id: str) -> str:
    return "refs/heads/task/" + checked_id(task_id)


def kept_prefix(task_id: str) -> str:
    return f"refs/shunter/kept/{checked_id(task_id)}/"


def mirror_config(object_format: str) -> bytes:
    lines = [
        "# shunter mirror, form 1; rewritten when it differs",
        "[core]",
        "\trepositoryformatversion = 1",
        "\tbare = true",
        "\tlogAllRefUpdates = false",
        "[extensions]",
        "\tpreciousObjects = true",
        *(["\tobjectFormat = " + object_format] if object_format != "sha1" else []),
        "[gc]",
        "\tauto = 0",
        "[maintenance]",
        "\tauto = false",
        "[transfer]",
        "\tunpackLimit = 1",  # one pack a push, not thousands of loose files
        "\tfsckObjects = true",
        "[receive]",
        "\tautogc = false",
        "\tdenyDeletes = true",
        "\tshallowUpdate = true",
        '[receive "fsck"]',
        *(f"\t{name} = warn" for name in _TOLERATED),
        '[fetch "fsck"]',
        *(f"\t{name} = warn" for name in _TOLERATED),
    ]
    return ("\n".join(lines) + "\n").encode()


def ensure_mirror(path: str, object_format: str = "sha1") -> bool:
    """Create the mirror unless it stands; True when this call made it. Any number of callers at once is fine."""
    if object_format not in ("sha1", "sha256"):
        raise ShunterError("REPOSITORY_UNSUPPORTED", f"object format {object_format!r} is not known")
    if _matches(path, object_format):
        return False
    with os_errors("IO", f"the mirror {path} could not be made"):
        return _ensure(path, object_format)


def _ensure(path: str, object_format: str) -> bool:
    parent, name = os.path.split(path)
    os.makedirs(parent, exist_ok=True)
    with hold_lock(os.path.join(parent, f".{name}.lock")):
        if _matches(path, object_format):
            return False
        if os.path.exists(os.path.join(path, "config")):
            write_atomically(os.path.join(path, "config"), mirror_config(object_format))
            _ensure_hook(path)
            return False
        _sweep(parent, (f".{name}.building-",), older_than_s=0.0)
        building = make_scratch(parent, f".{name}.building-")
        os.chmod(building, 0o700)
        form = [] if object_format == "sha1" else ["--object-format=" + object_format]
        run_git(["init", "--quiet", "--bare", "--template=", *form, building])
        write_atomically(os.path.join(building, "config"), mirror_config(object_format))
        _ensure_hook(building)
        os.rename(building, path)
    return True


def _matches(path: str, object_format: str) -> bool:
    """Whether a mirror of this form stands; raises when one with another object format does."""
    try:
        with open(os.path.join(path, "config"), "rb") as file:
            found = file.read()
    except FileNotFoundError:
        return False
    if (b"sha256" in found) != (object_format == "sha256"):
        raise ShunterError(
            "REPOSITORY_UNSUPPORTED",
            f"the mirror {path} was made for another object format than {object_format}",
            hint="Remove the mirror once no task uses it, or give the project another origin.",
        )
    return found == mirror_config(object_format)


def _ensure_hook(path: str) -> bool:
    """Put the hook in place unless it stands as it should; False when the file system will not run it."""
    hook = os.path.join(path, "hooks", "pre-receive")
    os.makedirs(os.path.dirname(hook), exist_ok=True)
    try:
        with open(hook, "rb") as file:
            right = file.read() == HOOK and not os.path.islink(hook)
    except FileNotFoundError:
        right = False
    if not right or not os.access(hook, os.X_OK):
        write_atomically(hook, HOOK, mode=0o755)
    return os.access(hook, os.X_OK)


def pin_base(mirror: str, task_id: str, oid: str) -> bool:
    """True when the mirror has the whole commit and the task's base ref now stands, so that no push is needed."""
    ref = base_ref(task_id)
    drop_stale_lock(os.path.join(mirror, ref + ".lock"))
    if not _is_proved(mirror, checked_oid(oid)):
        # Everything reachable is looked for, short of what other refs prove to be there: a part is no base.
        args = ["rev-list", "--objects", "--quiet", oid, "--not", "--all", "--"]
        if run_git(args, git_dir=mirror, allowed=()).status != 0:
            return False
        _remember_proved(mirror, oid)
    write_ref(mirror, ref, oid)
    return True


def start_packer(
    git_dir: str, oid: str, known: Sequence[str], *, errors: Union[int, IO[bytes]]
) -> subprocess.Popen[bytes]:
    """What `oid` has beyond the known commits comes as a thin pack on its stdout."""
    args = ["pack-objects", "-q", "--revs", "--thin", "--stdout", "--delta-base-offset"]
    pipe = subprocess.PIPE
    packer = subprocess.Popen(
        git_argv(args, git_dir=git_dir), cwd=git_dir, env=git_environment(), stdin=pipe, stdout=pipe, stderr=errors
    )
    wanted = "".join(f"{line}\n" for line in (oid, *("^" + each for each in known))).encode()
    with contextlib.suppress(BrokenPipeError), packer.stdin as revisions:  # type: ignore[union-attr]
        revisions.write(wanted)
    return packer


def bring_objects(mirror: str, source: str, oid: str, known: Sequence[str]) -> None:
    """Pack what a repository of ours has of `oid` beyond the commits that are whole in the mirror, and keep the pack.

    index-pack checks each object as a push would, and that everything they name is there or comes along. Raises
    PUBLISH_FAILED or DISK_FULL.
    """
    strict = "--strict=" + ",".join(f"{name.lower()}=warn" for name in _TOLERATED)
    with open(os.path.join(source, "pack-errors"), "w+b") as errors:
        with start_packer(source, oid, known, errors=errors) as packer:
            args = ["index-pack", "--stdin", "--fix-thin", strict]
            taken = run_git(args, git_dir=mirror, stdin=packer.stdout, allowed=())
        errors.seek(0)
        packed = GitResult(packer.returncode, b"", errors.read()[-4096:])
    if packed.status not in (0, -signal.SIGPIPE):
        raise_failed("pack-objects", packed, code="PUBLISH_FAILED")
    if taken.status != 0:
        raise_failed("index-pack", taken, code="PUBLISH_FAILED")


def move_ref(mirror: str, ref: str, oid: str) -> None:
    """Of one task; whoever holds its locks is the only one who writes it."""
    remove(os.path.join(mirror, ref + ".lock"))  # of a git that died with the machine
    write_ref(mirror, ref, oid, code="PUBLISH_FAILED")


def drop_stale_lock(path: str) -> None:
    """Of a git that died with the machine; one at work holds it for a moment, in which it must not be taken away."""
    try:
        if time.time() - os.stat(path).st_mtime > LOCK_HELD_S:
            remove(path)
    except FileNotFoundError:
        pass


# A mirror only grows, so what was proved complete once stays so; `rev-list --not --all` reads every ref of every task.
def _is_proved(mirror: str, oid: str) -> bool:
    return os.path.exists(os.path.join(mirror, PROVED, oid))


def _remember_proved(mirror: str, oid: str) -> None:
    directory = os.path.join(mirror, PROVED)
    try:
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, oid), "wb"):
            pass
    except OSError:
        pass  # it is proved again next time


def exec_receive_pack(mirror: str, task_id: str) -> NoReturn:
    """Become receive-pack for one base; never returns. Meant for the program that `git push` starts."""
    ref = base_ref(task_id)
    sweep_leftovers(mirror)
    hook_runs = _ensure_hook(mirror)
    # Other bases are shown so that a push sends only what is new. Where hooks cannot run (noexec), receive-pack's own
    # refusal of hidden refs must do, so only the task's ref is shown and the push may send more than needed.
    shown = "refs/shunter/bases" if hook_runs else ref
    config = [
        f"core.hooksPath={os.path.join(mirror, 'hooks')}",
        "receive.hideRefs=refs",
        f"receive.hideRefs=!{shown}",
    ]
    _exec(["receive-pack", mirror], config, task_id)


def exec_upload_pack(mirror: str, task_id: str) -> NoReturn:
    """Become upload-pack that offers one task's result and kept work; never returns."""
    config = [
        "uploadpack.hideRefs=refs",
        f"uploadpack.hideRefs=!{result_ref(task_id)}",
        f"uploadpack.hideRefs=!{kept_prefix(task_id).rstrip('/')}",
    ]
    _exec(["upload-pack", "--strict", mirror], config, task_id)


def _exec(args: List[str], config: List[str], task_id: str) -> NoReturn:
    environment = git_environment()
    environment["SHUNTER_TASK"] = checked_id(task_id)
    argv = git_argv(args, config=config)
    os.execvpe("git", argv, environment)


def sweep_leftovers(mirror: str, *, older_than_s: float = STALE_AFTER_S) -> None:
    """Remove what cut connections left behind: quarantine directories and unfinished packs."""
    objects = os.path.join(mirror, "objects")
    _sweep(objects, ("incoming-", "tmp_objdir-"), older_than_s=older_than_s)
    _sweep(os.path.join(objects, "pack"), ("tmp_pack_", "tmp_idx_", ".tmp-"), older_than_s=older_than_s)


def _sweep(directory: str, prefixes: Tuple[str, ...], *, older_than_s: float) -> None:
    # File times are the wall clock's, so a jump of it can only delay the sweep or hit a day-old leftover early.
    oldest = time.time() - older_than_s
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(prefixes) and entry.stat(follow_symlinks=False).st_mtime <= oldest:
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
