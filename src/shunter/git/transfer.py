"""The transfer repository: the bare repository of ours through which everything leaves and enters the user's.

It borrows objects from the user's repository and from whatever that one borrows from. Wip trees, pinned bases and
fetched results live here, so the user's repository is written exactly once: when a result is imported.

Refs: `refs/shunter/bases/<task>`, `refs/shunter/results/<task>`, `refs/shunter/kept/<task>/<n>`, and
`refs/shunter/kept/<task>/result-<oid>` for a result of before that the present one does not contain.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from shunter.host.flock import hold_lock
from shunter.host.gitrun import (
    GitResult,
    alternates_line,
    failure_line,
    git_disk_code,
    is_disk_full,
    raise_failed,
    run_git,
    write_atomically,
    write_ref,
)
from shunter.host.mirror import base_ref, drop_stale_lock, kept_prefix, result_ref
from shunter.host.workspace import copy_shallow
from shunter.wire.errors import ShunterError
from shunter.wire.ids import checked_id, checked_oid, is_host_name

from .repository import Repository

_MAX_LENDERS = 64
_UNPACK_LIMIT = 100  # from so many objects on a pack stays one, as in git's own transfer.unpackLimit


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer repository that is ready; `lenders` are the object directories that it borrows from.

    `is_partial`: the user's repository was cloned with a filter, so what it borrows may have holes.
    """

    path: str
    repo_id: str
    lenders: tuple[str, ...]
    is_partial: bool

    @property
    def objects_dir(self) -> str:
        return str(Path(self.path, "objects"))

    def pin(self, task_id: str, oid: str) -> None:
        """Let the task's base ref stand at a commit, so that nothing here forgets it."""
        ref = base_ref(task_id)
        drop_stale_lock(f"{self.path}/{ref}.lock")
        write_ref(self.path, ref, checked_oid(oid))


@dataclass(frozen=True, slots=True)
class Imported:
    """The ref that was written into the user's repository, and where it stands."""

    ref: str
    oid: str


def held_result_ref(task_id: str) -> str:
    return "refs/shunter/results/" + checked_id(task_id)


def open_transfer(root: str, repo: Repository) -> Transfer:
    """Make or refresh the transfer repository of a user repository; any number of callers at once is fine."""
    path = Path(root, f"{repo.repo_id}.git")
    lenders = lender_dirs(repo.objects_dir)
    if not path.exists():
        Path(root).mkdir(parents=True, exist_ok=True, mode=0o700)
        with hold_lock(str(Path(root, f".{repo.repo_id}.lock"))):
            if not path.exists():
                _create(path, repo.object_format)
    borrowed = os.fsencode("".join(alternates_line(each) + "\n" for each in lenders))
    _keep_equal(path / "objects" / "info" / "alternates", borrowed)
    copy_shallow(repo.common_dir, str(path))
    if not repo.is_shallow:
        (path / "shallow").unlink(missing_ok=True)
    return Transfer(str(path), repo.repo_id, lenders, repo.is_partial)


def find_transfer(root: str, repo_id: str) -> Transfer | None:
    """A transfer repository as it is, for when the user's repository is out of reach."""
    path = Path(root, f"{checked_id(repo_id)}.git")
    return Transfer(str(path), repo_id, (), is_partial=False) if path.is_dir() else None


def find_parent(root: str, repo_id: str, oid: str) -> str | None:
    """The commit that a wip commit stands on, also when the user's repository is gone; None when nobody knows it."""
    transfer = find_transfer(root, repo_id)
    if transfer is None:
        return None
    args = ["rev-parse", "--verify", "--quiet", checked_oid(oid) + "^"]
    found = run_git(args, git_dir=transfer.path, allowed=())
    return found.text if found.status == 0 else None


def _create(path: Path, object_format: str) -> None:
    building = Path(tempfile.mkdtemp(prefix=f".{path.name}.building-", dir=path.parent))
    try:
        form = [] if object_format == "sha1" else [f"--object-format={object_format}"]
        run_git(["init", "--quiet", "--bare", "--template=", *form, str(building)])
        with (building / "config").open("a") as config:
            config.write("[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[core]\n\tlogAllRefUpdates = false\n")
        (building / "objects" / "info").mkdir(exist_ok=True)
        building.rename(path)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise


def _keep_equal(path: Path, content: bytes) -> None:
    try:
        if path.read_bytes() == content:
            return
    except FileNotFoundError:
        pass
    write_atomically(str(path), content)


def lender_dirs(objects_dir: str) -> tuple[str, ...]:
    """The object directory and all that it borrows from, directly or not; one that is gone is an error with its name.

    The chain is resolved here, because git follows it only five steps deep and may not follow relative entries.
    """
    found: list[str] = []
    waiting = [objects_dir]
    while waiting and len(found) < _MAX_LENDERS:
        directory = os.path.realpath(waiting.pop(0))
        if directory in found:
            continue
        if not Path(directory).is_dir():
            raise ShunterError(
                "BASE_UNAVAILABLE",
                f"the repository borrows objects from {directory}, which is gone",
                hint="Bring that directory back, or correct objects/info/alternates.",
            )
        found.append(directory)
        waiting += [os.path.join(directory, entry) for entry in _alternates(directory)]  # noqa: PTH118
    return tuple(found)


def _alternates(objects_dir: str) -> list[str]:
    try:
        content = os.fsdecode(Path(objects_dir, "info", "alternates").read_bytes())
    except OSError:
        return []
    lines = [line for line in content.split("\n") if line and not line.startswith("#")]
    return [_unquote(line) for line in lines]


def _unquote(line: str) -> str:
    if not (line.startswith('"') and line.endswith('"') and len(line) > 1):
        return line
    return os.fsdecode(line[1:-1].encode("latin-1", "surrogateescape").decode("unicode_escape").encode("latin-1"))


def push_base(
    transfer: Transfer,
    url: str,
    receive_pack_command: str,
    oid: str,
    task_id: str,
    *,
    ssh_command: str | None = None,
) -> None:
    """Push a commit and all it needs to the task's base ref on a host; harmless when it is there.

    Judged by the remote's own report for the ref. Raises TRANSFER_FAILED, or what is wrong with either disk.
    """
    ref = base_ref(task_id)
    args = [
        *("push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no"),
        *(f"--receive-pack={receive_pack_command}", "--", url, f"+{checked_oid(oid)}:{ref}"),
    ]
    done = _transport(transfer.path, args, url, ssh_command)
    if done.status != 0 and transfer.is_partial and not is_complete(transfer, oid):
        raise ShunterError(
            "REPOSITORY_UNSUPPORTED",
            f"the repository is a partial clone and lacks objects of {oid}, so the commit cannot be sent",
            hint="git fetch --refetch --no-filter",
        )
    report = next((line for line in done.out.split(b"\n") if line[1:2] == b"\t" and ref.encode() in line), b"")
    if done.status == 0 and report[:1] in (b" ", b"+", b"*", b"="):
        return
    if report[:1] == b"!":
        reason = os.fsdecode(report.rsplit(b"\t", 1)[1])
        code = git_disk_code(done.err, "TRANSFER_FAILED")
        raise ShunterError(code, f"the host did not take the base: {reason}; {_remote_words(done)}")
    raise_failed("push", done, code="TRANSFER_FAILED")


def _remote_words(done: GitResult) -> str:
    lines = [line for line in done.err.decode("utf-8", "replace").splitlines() if line.startswith("remote:")]
    return " ".join(line.removeprefix("remote:").strip() for line in lines) or failure_line(done.err)


def fetch_result(
    transfer: Transfer,
    url: str,
    upload_pack_command: str,
    task_id: str,
    head_oid: str,
    *,
    ssh_command: str | None = None,
    kept: bool = False,
    pack: bytes | None = None,
) -> None:
    """Fetch the published branch of a task; afterwards `head_oid` and all it needs is in the transfer repository.

    Judged by the object, not the exit status. `kept`: also the refs of other finished work. `pack`: what came already;
    nothing is fetched when that was all. Raises FETCH_FAILED.
    """
    ref = held_result_ref(task_id)
    drop_stale_lock(f"{transfer.path}/{ref}.lock")
    if pack is not None and not kept:
        known = f"--glob={base_ref(task_id)}"
        if take_pack(transfer.path, pack, ref=ref, oid=checked_oid(head_oid), known=known):
            return
    refspecs = [f"+{result_ref(task_id)}:{ref}"]
    if kept:
        refspecs.append(f"+{kept_prefix(task_id)}*:{kept_prefix(task_id)}*")
    args = ["fetch", "--quiet", *_FETCH_ONLY, "--update-shallow", f"--upload-pack={upload_pack_command}", "--", url]
    done = _transport(transfer.path, [*args, *refspecs], url, ssh_command)
    if is_complete(transfer, checked_oid(head_oid), task_id):
        write_ref(transfer.path, ref, head_oid)  # the host's branch may have gone back, and with it the ref
        return
    if is_disk_full(done.err):
        raise_failed("fetch", done)
    # The user's repository may have dropped what we borrowed. Then nothing may be assumed to be here already.
    for broken in (base_ref(task_id), ref):
        run_git(["update-ref", "-d", broken], git_dir=transfer.path, allowed=())
    done = _transport(transfer.path, [*args, *refspecs], url, ssh_command, config=("fetch.negotiationAlgorithm=noop",))
    if is_complete(transfer, head_oid):
        write_ref(transfer.path, ref, head_oid)
        return
    found = run_git(["rev-parse", "--verify", "--quiet", ref], git_dir=transfer.path, allowed=()).text
    reason = failure_line(done.err) if done.status != 0 else f"the host's branch stands at {found}"
    raise ShunterError("FETCH_FAILED", f"commit {head_oid} did not come: {reason}")


_FETCH_ONLY = (
    *("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance", "--no-prune"),
    "--no-show-forced-updates",
)


def is_complete(transfer: Transfer, oid: str, task_id: str | None = None) -> bool:
    """Whether everything that the commit needs can be read; the task's base is taken as proved."""
    args = ["rev-list", "--objects", "--quiet", oid]
    if task_id is not None:
        args += ["--not", f"--glob={base_ref(task_id)}"]
    return run_git([*args, "--"], git_dir=transfer.path, allowed=()).status == 0


def _transport(
    git_dir: str, args: list[str], url: str, ssh_command: str | None, *, config: tuple[str, ...] = ()
) -> GitResult:
    """Run push or fetch. HOME stays, because ssh and the program at the other end need it."""
    env: dict[str, str] = {}
    if ssh_command is not None:
        env = {"GIT_SSH_COMMAND": ssh_command, "GIT_SSH_VARIANT": "ssh"}
    return run_git(args, git_dir=git_dir, env=env, config=(*config, *no_rewriting(url)), keep_home=True, allowed=())


def no_rewriting(url: str) -> tuple[str, ...]:
    """Settings that keep any `insteadOf` from rewriting this URL: the longest match wins, and the whole is longest."""
    if "=" in url or "\n" in url:
        return ()  # cannot be said on the command line; configuration outside our repositories is off anyway
    return (f"url.{url}.insteadOf={url}", f"url.{url}.pushInsteadOf={url}")


def take_pack(git_dir: str, pack: bytes, *, ref: str, oid: str, known: str, config: tuple[str, ...] = ()) -> bool:
    """Unpack, prove the commit complete short of what the refs `known` reach, and only then let the ref stand there.

    False, and no ref has moved: the pack was not all that was needed, or is no pack, or the ref cannot be written.
    """
    steps = (["rev-list", "--objects", "--quiet", oid, "--not", known, "--"], ["update-ref", ref, oid])
    return _unpack(git_dir, pack, config) and all(
        run_git(args, git_dir=git_dir, config=config, allowed=()).status == 0 for args in steps
    )


def _unpack(git_dir: str, pack: bytes, config: tuple[str, ...] = ()) -> bool:
    is_small = int.from_bytes(pack[8:12], "big") < _UNPACK_LIMIT
    args = ["unpack-objects", "-q", "--strict"] if is_small else ["index-pack", "--stdin", "--fix-thin", "--strict"]
    return run_git(args, git_dir=git_dir, stdin=pack, config=config, allowed=()).status == 0


def import_pack(
    repo: Repository, transfer: Transfer, host_name: str, task_id: str, head_oid: str, pack: bytes
) -> Imported | None:
    """A result that came as one pack, into both repositories. None: something is missing or in the way, and no ref has
    moved; `fetch_result` and `import_result` find out what.

    The objects go into the transfer repository first, since git writes nothing that it can borrow. It is whole when
    the user's is: it borrows from there what the pack lacks.
    """
    source = held_result_ref(task_id)
    if not _unpack(transfer.path, pack):
        return None
    for ref in _result_refs(host_name, task_id):
        if take_pack(repo.common_dir, pack, ref=ref, oid=checked_oid(head_oid), known="--all", config=_INTO):
            drop_stale_lock(f"{transfer.path}/{source}.lock")
            write_ref(transfer.path, source, head_oid)
            return Imported(ref, head_oid)
        if not _is_name_taken(repo, ref):
            break
    return None


def _result_refs(host_name: str, task_id: str) -> tuple[str, str]:
    """A branch or remote of the user's may stand where a directory of ours is needed; then a flat name beside it."""
    if not is_host_name(host_name):
        raise ShunterError("FETCH_FAILED", f"{host_name!r} cannot be part of a ref name")
    return (
        f"refs/remotes/shunter/{host_name}/task/{checked_id(task_id)}",
        f"refs/remotes/shunter-results/{host_name}-task-{task_id}",
    )


def import_result(repo: Repository, transfer: Transfer, host_name: str, task_id: str, head_oid: str) -> Imported:
    """The one write into the user's repository: objects, and one remote-tracking ref. A second call changes nothing.

    No FETCH_HEAD, reflog, tags, configuration, hooks, submodules or garbage collection. Raises FETCH_FAILED and says
    where the result is kept.
    """
    refs = _result_refs(host_name, task_id)
    source = held_result_ref(task_id)
    kept = f"the result is kept in {transfer.path} as {source}"
    if not Path(repo.objects_dir).is_dir():
        raise ShunterError("FETCH_FAILED", f"the repository {repo.common_dir} is gone; {kept}")
    reason = ""
    for ref in refs:
        if _ref_oid(repo, ref) == head_oid:
            return Imported(ref, head_oid)
        done = _import(repo, transfer, f"+{source}:{ref}")
        if _ref_oid(repo, ref) == head_oid:
            return Imported(ref, head_oid)
        reason = failure_line(done.err) if done.status != 0 else f"{source} is another commit"
        if is_disk_full(done.err):
            raise_failed("fetch", done)
        if not _is_name_taken(repo, ref):
            break
    raise ShunterError("FETCH_FAILED", f"the result could not be imported: {reason}; {kept}")


def find_imported(repo: Repository, host_name: str, task_id: str) -> Imported | None:
    """The task's ref in the user's repository; None when it has none."""
    for ref in _result_refs(host_name, task_id):
        oid = _ref_oid(repo, ref)
        if oid is not None:
            return Imported(ref, oid)
    return None


def keep_former(transfer: Transfer, task_id: str, former_oid: str, head_oid: str) -> str | None:
    """Give a delivered commit that the new head does not contain a ref beside other kept work: its name.

    None when the head contains it, or when it is nowhere any more. Repeating is harmless.
    """
    args = ["merge-base", "--is-ancestor", checked_oid(former_oid), checked_oid(head_oid)]
    if run_git(args, git_dir=transfer.path, allowed=()).status != 1:
        return None
    ref = f"{kept_prefix(task_id)}result-{former_oid[:12]}"
    write_ref(transfer.path, ref, former_oid)
    return ref


def import_kept(repo: Repository, transfer: Transfer, host_name: str, task_id: str) -> tuple[str, ...]:
    """Work that was no part of the result, as refs/remotes/shunter/<host>/kept/<task>/<n>; only on somebody's word."""
    prefix = kept_prefix(task_id)
    listed = run_git(["for-each-ref", "--format=%(refname)", prefix], git_dir=transfer.path).text.splitlines()
    written = []
    for source in listed:
        ref = f"refs/remotes/shunter/{host_name}/kept/{checked_id(task_id)}/{source.removeprefix(prefix)}"
        done = _import(repo, transfer, f"+{source}:{ref}")
        if _ref_oid(repo, ref) is None:
            raise_failed("fetch", done, code="FETCH_FAILED")
        written.append(ref)
    return tuple(written)


def _import(repo: Repository, transfer: Transfer, refspec: str) -> GitResult:
    return run_git(
        ["fetch", "--quiet", *_FETCH_ONLY, "--refmap=", "--update-shallow", "--", transfer.path, refspec],
        git_dir=repo.common_dir,
        config=(
            *_INTO,
            *no_rewriting(transfer.path),
            "fetch.writeCommitGraph=false",
            "protocol.file.allow=always",
        ),
        allowed=(),
    )


# For writing into the user's repository, whose own git may hold a lock for a moment.
_INTO = ("core.logAllRefUpdates=false", "core.filesRefLockTimeout=5000", "core.packedRefsTimeout=5000")


def _ref_oid(repo: Repository, ref: str) -> str | None:
    found = run_git(["rev-parse", "--verify", "--quiet", ref], git_dir=repo.common_dir, own=False, allowed=())
    return found.text if found.status == 0 else None


def _is_name_taken(repo: Repository, ref: str) -> bool:
    """Whether a ref of the user's stands at a parent of this name."""
    parts = ref.split("/")
    parents = ["/".join(parts[:count]) for count in range(3, len(parts))]
    listed = run_git(["for-each-ref", "--format=%(refname)", *parents], git_dir=repo.common_dir, own=False)
    return any(line.decode() in parents for line in listed.out.splitlines())
