"""Where a host keeps what; every path is built from checked ids.

<data_root>/ledger.db  bin/  lib/<digest>/  run/  mirrors/<project>.git  tasks/<task>/  jobs/<attempt>/  signals/
"""

from __future__ import annotations

import contextlib
import os

from ..wire.ids import checked_id

# All that a data root may hold; what else is in it is somebody's.
OURS = (
    *("bin", "lib", "run", "mirrors", "tasks", "jobs", "signals", "locks", "login_env", "agents.json", "host_id"),
    *("ledger.db", "ledger.db-wal", "ledger.db-shm"),
)
ASIDE = ".removing-"  # what a purge moved out of the way: in the data root, or beside it after its name


class Layout:
    def __init__(self, data_root: str) -> None:
        self.root = os.path.realpath(data_root)
        self.ledger = os.path.join(self.root, "ledger.db")
        self.run = os.path.join(self.root, "run")
        self.signals = os.path.join(self.root, "signals")
        self.locks = os.path.join(self.root, "locks")

    def make(self) -> None:
        """Create the directories; harmless when they are there. Nobody else may look into the root, whoever made it."""
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        if os.stat(self.root).st_mode & 0o077:
            os.chmod(self.root, 0o700)
        self.mend()

    def mend(self) -> None:
        """Create again what somebody removed below the root, and never the root itself. Raises OSError."""
        for name in ("run", "signals", "locks", "mirrors", "tasks", "jobs", "bin", "lib"):
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.join(self.root, name), mode=0o700)

    def mirror(self, project_id: str) -> str:
        return os.path.join(self.root, "mirrors", checked_id(project_id) + ".git")

    def task(self, task_id: str) -> str:
        return os.path.join(self.root, "tasks", checked_id(task_id))

    def workspace(self, task_id: str) -> str:
        return os.path.join(self.task(task_id), "workspace")

    def session(self, task_id: str) -> str:
        return os.path.join(self.task(task_id), "session")

    def job(self, attempt_id: str) -> str:
        return os.path.join(self.root, "jobs", checked_id(attempt_id))

    def signal(self, attempt_id: str, kind: str) -> str:
        return os.path.join(self.signals, checked_id(attempt_id) + "." + kind)

    def task_lock(self, task_id: str) -> str:
        return os.path.join(self.locks, checked_id(task_id))

    def recovery_lock(self, attempt_id: str) -> str:
        return os.path.join(self.locks, checked_id(attempt_id))

    def bell(self, pid: int) -> str:
        return os.path.join(self.run, f"{pid}.bell")
