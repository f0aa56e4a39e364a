"""A base out, a result home, and closing a task on its host; asked for by the driver and by people alike."""

from __future__ import annotations

from ..fleet.places import Places
from ..git.repository import open_repository
from ..git.transfer import fetch_result, import_result, open_transfer, push_base
from ..model.records import Project, Task
from ..store.contract import Store
from ..wire.messages import CloseAsk, MirrorAsk
from .hosts import HostEntry


def send_base(entry: HostEntry, places: Places, project: Project, ask: MirrorAsk, *, mirror: str) -> None:
    """Push the base into the host's mirror, under the lease that `ask` names. Repeating is harmless."""
    transport = entry.client.transport
    push_base(
        open_transfer(str(places.transfer_dir), open_repository(project.worktree)),
        transport.mirror_url(mirror),
        receive_pack_command=transport.pack_command("receive-pack", "--attempt", ask.attempt_id, "--token", ask.token),
        oid=ask.base_oid,
        task_id=ask.task_id,
    )


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
