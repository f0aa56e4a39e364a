"""A base out, a result home, and closing a task on its host; asked for by the driver and by people alike."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from ..fleet.places import Places
from ..git.repository import Repository, holds_commit, open_repository
from ..git.transfer import (
    Transfer,
    fetch_result,
    find_imported,
    find_parent,
    find_transfer,
    import_pack,
    import_result,
    is_complete,
    keep_former,
    open_transfer,
    push_base,
)
from ..model.records import Project, Task
from ..store.contract import Store
from ..wire.errors import ShunterError
from ..wire.messages import CloseAsk, MirrorAsk, PackAsk, Publication
from .hosts import NOT_REACHED, HostEntry


def send_base(entry: HostEntry, places: Places, project: Project, ask: MirrorAsk, *, mirror: str) -> None:
    """Push the base into the host's mirror, under the lease that `ask` names. Repeating is harmless.

    Raises CHECKOUT_MISSING when home does not have it without the user's repository, and that is out of reach.
    """
    transport = entry.client.transport
    transfer = _open_source(places, project, ask)
    pack_command = transport.pack_command("receive-pack", "--attempt", ask.attempt_id, "--token", ask.token)
    try:
        push_base(
            transfer,
            transport.mirror_url(mirror),
            receive_pack_command=pack_command,
            oid=ask.base_oid,
            task_id=ask.task_id,
            ssh_command=transport.ssh_command(),
        )
    except ShunterError as exc:
        if exc.code != "TRANSFER_FAILED" or is_complete(transfer, ask.base_oid):
            raise
        raise _checkout_missing(f"{project.worktree} does not hold all of commit {ask.base_oid}", ask) from exc


def _open_source(places: Places, project: Project, ask: MirrorAsk) -> Transfer:
    try:
        return open_transfer(str(places.transfer_dir), _open_again(project.worktree))
    except ShunterError as exc:
        if exc.code not in _OUT_OF_REACH:
            raise
        kept = find_transfer(str(places.transfer_dir), project.repo_id)
        if kept is not None and is_complete(kept, ask.base_oid):
            return kept
        raise _checkout_missing(exc.text, ask) from exc


def _checkout_missing(text: str, ask: MirrorAsk) -> ShunterError:
    return ShunterError("CHECKOUT_MISSING", text, hint=f"put it back, or shunter cancel {ask.task_id}")


_OUT_OF_REACH = ("NOT_A_REPOSITORY", "UNBORN_HEAD", "REPOSITORY_UNSUPPORTED", "GIT_FAILED", "BASE_UNAVAILABLE")


@dataclass(frozen=True, slots=True)
class Delivered:
    """`ref`: in the user's repository; None when the result is the base itself. `notice`: of a result of before."""

    ref: str | None
    notice: str | None = None

    def noted(self, publication: Publication) -> Publication:
        """The publication as it is recorded here."""
        given = publication.notices
        if self.notice is None or self.notice in given:
            return publication
        return replace(publication, notices=(*given, self.notice))


def deliver_result(
    store: Store,
    entry: HostEntry,
    places: Places,
    task: Task,
    publication: Publication,
    *,
    again: bool = False,
    checkout: str | None = None,
) -> Delivered:
    """Fetch into the transfer repository, then import one ref into the user's. Repeating is harmless.

    Work that is no part of the result is fetched along and stays in the transfer repository until somebody wants it;
    so does the result that was delivered before, when this one does not contain it: an agent rewrote its branch, or a
    host forgot it. `again`: on somebody's word; then the ref may be further than the record of it, which is older where
    a copy of home's state was put back. `checkout`: for when the first one has moved.
    """
    repo = find_checkout(store, places, task, checkout)
    transfer = open_transfer(str(places.transfer_dir), repo)
    stood = find_imported(repo, entry.name, task.id) if again else None
    former = stood.oid if stood is not None else task.fetched_oid
    try:
        ref = _bring_home(entry, task, publication, repo=repo, transfer=transfer)
    except ShunterError as exc:
        # Closed on the host since, after an older copy of home's state was put back: it came home before.
        stands = find_imported(repo, entry.name, task.id)
        if exc.code in NOT_REACHED or stands is None or stands.oid != publication.head_oid:
            raise
        ref = stands.ref
    if ref is None or former is None or former == publication.head_oid:
        return Delivered(ref)
    if keep_former(transfer, task.id, former, publication.head_oid) is None:
        return Delivered(ref)
    words = f"the branch does not contain {former[:12]}, the result of before, which is kept"
    return Delivered(ref, f"{words}: `shunter fetch --kept {task.id}` brings it")


def _bring_home(
    entry: HostEntry, task: Task, publication: Publication, *, repo: Repository, transfer: Transfer
) -> str | None:
    pack = None if publication.kept or repo.is_shallow or repo.is_partial else _small_pack(entry, task, publication)
    if pack is not None and publication.commits and task.base_kind == "commit":  # work in progress is not in the user's
        taken = import_pack(repo, transfer, entry.name, task.id, publication.head_oid, pack)
        if taken is not None:
            return taken.ref
    transport = entry.client.transport
    mirror = entry.client.session().hello.data_root + f"/mirrors/{task.project_id}.git"
    fetch_result(
        transfer,
        transport.mirror_url(mirror),
        upload_pack_command=transport.pack_command("upload-pack", "--task", task.id),
        task_id=task.id,
        head_oid=publication.head_oid,
        kept=bool(publication.kept),
        ssh_command=transport.ssh_command(),
        pack=pack,
    )
    if not publication.commits:
        return None
    return import_result(repo, transfer, entry.name, task.id, publication.head_oid).ref


def _small_pack(entry: HostEntry, task: Task, publication: Publication) -> bytes | None:
    """The result in an answer of the session; None when it has to be fetched."""
    ask = PackAsk(task.id, task.project_id, task.base_oid, publication.head_oid)
    try:
        data = entry.client.call("result.pack", ask).data
        return None if data is None else base64.b64decode(data, validate=True)
    except ValueError:
        return None
    except ShunterError as exc:
        if exc.code in NOT_REACHED:
            raise
        return None  # an older helper does not know the method


def find_checkout(store: Store, places: Places, task: Task, checkout: str | None) -> Repository:
    """The checkout that the task came from; where that is gone or another one by now, the given one if it is it.

    What a checkout holds makes it the task's, whatever its name: the commit that the task stands on. A clone of the
    same origin will do too. Raises FETCH_FAILED with what speaks against the given one.
    """
    project, start = store.load_project(task), _start_of(places, task)
    place, repo = project.worktree, None
    hint = f"run `shunter fetch {task.id}` inside the checkout at its new place, or in a clone that has {start[:12]}"
    try:
        repo = _open_again(place)
        if _holds(repo.common_dir, Path(repo.common_dir).stat().st_ino, start):
            return repo
        fault = ShunterError("FETCH_FAILED", f"{place} is another repository by now: it lacks commit {start[:12]}")
    except ShunterError as exc:
        is_gone = exc.code in ("NOT_A_REPOSITORY", "UNBORN_HEAD")
        fault = ShunterError("FETCH_FAILED", f"the checkout {place} is gone") if is_gone else exc
    other, why = _look_at(checkout, project, start)
    if other is not None and (repo is None or other.root == repo.root or holds_commit(other.common_dir, start)):
        return other
    if fault.code != "FETCH_FAILED":
        raise fault
    raise ShunterError(fault.code, fault.text + why, hint=hint)


@lru_cache(maxsize=1024)
def _holds(common_dir: str, inode: int, oid: str) -> bool:
    """`inode`: of the directory, for another one may stand there tomorrow."""
    return holds_commit(common_dir, oid)


def _start_of(places: Places, task: Task) -> str:
    """The last commit of the user's own that the task stands on."""
    if task.base_kind == "commit":
        return task.base_oid
    return find_parent(str(places.transfer_dir), task.repo_id, task.base_oid) or task.base_oid


def _look_at(checkout: str | None, project: Project, start: str) -> tuple[Repository | None, str]:
    """The repository around a directory if it may be the project's; otherwise None and what speaks against it."""
    if checkout is None:
        return None, ""
    try:
        found = open_repository(checkout)
    except ShunterError as exc:
        return None, f", and {exc.text}"
    if found.object_format == project.object_format and (
        found.project_id == project.project_id or holds_commit(found.common_dir, start)
    ):
        return found, ""
    return None, f", and {found.root} is not it: it lacks commit {start}"


def _open_again(place: str) -> Repository:
    """As it was at an earlier call, HEAD and branch included, as long as its configuration is the same."""
    try:
        stamp = tuple(_stamp_of(Path(place, name)) for name in _DECISIVE)
    except OSError:  # a linked worktree, or something is gone
        return open_repository(place)
    return _opened(place, stamp)


_DECISIVE = (".", ".git/config", ".git/config.worktree", ".git/shallow")


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    return seen.st_dev, seen.st_ino, seen.st_uid, *(() if path.is_dir() else (seen.st_mtime_ns, seen.st_size))


@lru_cache(maxsize=64)
def _opened(place: str, stamp: tuple[object, ...]) -> Repository:
    return open_repository(place)


def has_news(publication: Publication | None) -> bool:
    """Whether there is anything to bring home."""
    return publication is not None and bool(publication.commits or publication.kept)


def close_on_host(entry: HostEntry, task: Task, *, delivered_oid: str | None, actor: str, force: bool) -> list[str]:
    """Remove the workspace; what could not be removed. `force` discards what home does not have."""
    proof = None if force else (delivered_oid or task.base_oid)
    closed = entry.client.call("task.close", CloseAsk(task.id, task.project_id, proof, actor))
    return list(closed.kept)
