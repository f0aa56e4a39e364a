"""Bringing a result home, and closing a task on its host; asked for by the driver and by people alike."""

from __future__ import annotations

from ..fleet.places import Places
from ..git.repository import open_repository
from ..git.transfer import fetch_result, import_result, open_transfer
from ..model.records import Task
from ..store.contract import Store
from ..wire.messages import CloseAsk
from .hosts import HostEntry


def deliver_result(store: Store, entry: HostEntry, places: Places, task: Task, head_oid: str) -> str:
    """Fetch into the transfer repository, then import one ref into the user's: its name. Repeating is harmless."""
    project = store.load_project(task)
    repo = open_repository(project.worktree)
    transfer = open_transfer(str(places.transfer_dir), repo)
    transport = entry.client.transport
    mirror = entry.client.session().hello.data_root + f"/mirrors/{task.project_id}.git"
    fetch_result(
        transfer,
        transport.mirror_url(mirror),
        upload_pack_command=transport.pack_command("upload-pack", "--task", task.id),
        task_id=task.id,
        head_oid=head_oid,
    )
    return import_result(repo, transfer, host_name=entry.name, task_id=task.id, head_oid=head_oid).ref


def close_on_host(entry: HostEntry, task: Task, *, delivered_oid: str | None, actor: str, force: bool) -> list[str]:
    """Remove the workspace; what could not be removed. `force` discards what home does not have."""
    proof = None if force else (delivered_oid or task.base_oid)
    closed = entry.client.call("task.close", CloseAsk(task.id, task.project_id, proof, actor))
    return list(closed.kept)
