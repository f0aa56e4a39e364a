"""A user's home, repositories in many forms, and a host's directories, all below one temporary directory."""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from shunter.git.repository import Repository, open_repository
from shunter.git.transfer import Transfer, fetch_result, import_pack, import_result, open_transfer, push_base
from shunter.host.loose import find_loose
from shunter.host.mirror import base_ref, ensure_mirror
from shunter.host.pack import pack_result
from shunter.host.publish import publish_workspace
from shunter.host.workspace import Identity, Workspace, ensure_workspace
from shunter.wire.messages import PackAsk, Publication

SRC = str(Path(__file__).parents[3] / "src")
TASK = "7k2m9x4q1c"
IDENTITY = Identity('Ann "A" Agent', "ann@example.org")


def git(cwd: Path, *args: str | bytes, check: bool = True, env: dict[str, str] | None = None) -> str:
    """Git as a person or an agent calls it: with the environment's own HOME and configuration."""
    done = subprocess.run(["git", *args], cwd=cwd, capture_output=True, env={**os.environ, **(env or {})})
    assert not check or done.returncode == 0, done.stderr.decode(errors="replace")
    return os.fsdecode(done.stdout).rstrip("\n")


def write(path: Path, content: str | bytes = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def commit_all(repo: Path, message: str = "more") -> str:
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "--allow-empty", "-m", message)
    return git(repo, "rev-parse", "HEAD")


def a_repository(path: Path, *, object_format: str = "sha1", files: int = 5) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q", f"--object-format={object_format}", "-b", "main")
    for number in range(files):
        write(path / f"dir{number % 3}" / f"file {number}.txt", f"line {number}\n" * 5)
    commit_all(path, "first")
    write(path / "README.md", "hello\n")
    commit_all(path, "second")
    return path


def fingerprint(*roots: Path, objects: bool = True) -> dict[str, str]:
    """Everything about every path below: kind, mode, time, content. `objects=False` leaves object stores out.

    Of object files the time does not count: git renews it when a borrower needs the object, which keeps it from `gc`.
    """
    found: dict[str, str] = {}
    for root in roots:
        for directory, names, files in os.walk(os.fsencode(root)):
            if not objects and directory.endswith(b"/objects"):
                names.clear()
                continue
            for name in names + files:
                path = os.path.join(directory, name)
                about = os.lstat(path)
                if os.path.islink(path):
                    content = os.readlink(path)
                else:
                    content = Path(os.fsdecode(path)).read_bytes() if os.path.isfile(path) else b""
                is_directory = os.path.isdir(path) and not os.path.islink(path)
                times = "" if is_directory or b"/objects/" in path else f"{about.st_mtime_ns}"
                found[os.fsdecode(path)] = f"{about.st_mode:o} {times} {hashlib.sha256(content).hexdigest()}"
    return found


def program(call: str) -> str:
    """Command line of a program that runs one function of ours with the mirror's path as `path`."""
    code = f"import sys; sys.path.insert(0, {SRC!r}); path = sys.argv[1]; {call}"
    return shlex.join([sys.executable, "-I", "-S", "-c", code])


def receive_pack(task_id: str = TASK) -> str:
    return program(f"from shunter.host.mirror import exec_receive_pack; exec_receive_pack(path, {task_id!r})")


def upload_pack(task_id: str = TASK) -> str:
    return program(f"from shunter.host.mirror import exec_upload_pack; exec_upload_pack(path, {task_id!r})")


@dataclass
class World:
    """The directories of home and of one host."""

    tmp: Path
    by_pack: bool = False  # results come home as the bytes of a pack, not by git's own transport

    @property
    def mirror(self) -> str:
        return str(self.tmp / "host" / "mirrors" / "project.git")

    def workspace(self, task_id: str = TASK) -> Path:
        return self.tmp / "host" / "tasks" / task_id / "workspace"

    def transfer(self, repo: Repository) -> Transfer:
        return open_transfer(str(self.tmp / "home" / "transfer"), repo)

    def ship(self, where: Path, oid: str | None = None, task_id: str = TASK) -> tuple[Repository, Transfer, str]:
        """From the user's repository into the mirror."""
        repo = open_repository(str(where))
        transfer = self.transfer(repo)
        base = oid or repo.head_oid
        ensure_mirror(self.mirror, repo.object_format)
        transfer.pin(task_id, base)
        push_base(transfer, self.mirror, receive_pack(task_id), base, task_id)
        return repo, transfer, base

    def check_out(self, base: str, task_id: str = TASK) -> Workspace:
        path = str(self.workspace(task_id))
        return ensure_workspace(path, self.mirror, task_id=task_id, base_oid=base, identity=IDENTITY)

    def publish(self, base: str, turn_base: str | None = None, task_id: str = TASK) -> Publication:
        """And look, as whoever closes the task does: nothing stands in the workspace alone but what is said to."""
        published = publish_workspace(
            str(self.workspace(task_id)),
            self.mirror,
            task_id=task_id,
            base_oid=base,
            turn_base_oid=turn_base or base,
            message="left-over files of the turn",
            identity=IDENTITY,
        )
        assert self.loose(base, published, task_id) == ("; ".join(published.left_out[:5]) or None)
        return published

    def loose(self, base: str, published: Publication, task_id: str = TASK) -> str | None:
        workspace = str(self.workspace(task_id))
        return find_loose(workspace, self.mirror, base_oid=base, published=published, timeout_s=60.0)

    def bring_home(self, repo: Repository, transfer: Transfer, head: str, task_id: str = TASK) -> str:
        pack = self.pack(transfer, head, task_id) if self.by_pack else None
        taken = None if pack is None else import_pack(repo, transfer, "host-1", task_id, head, pack)
        if taken is not None:
            return taken.ref
        fetch_result(transfer, self.mirror, upload_pack(task_id), task_id, head, pack=pack)
        return import_result(repo, transfer, "host-1", task_id, head).ref

    def pack(self, transfer: Transfer, head: str, task_id: str = TASK) -> bytes | None:
        base = git(Path(transfer.path), "rev-parse", base_ref(task_id))
        data = pack_result(self.mirror, PackAsk(task_id, "project", base, head)).data
        return None if data is None else base64.b64decode(data)
