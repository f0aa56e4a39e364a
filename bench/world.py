"""A home, a host and a repository for one benchmark, in memory (/dev/shm) where there is such a place."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .measure import LIMIT_S, wait_until

SHUNTER = str(Path(sys.executable).parent / "shunter")
# Tools of version managers put a script in front of every program; what is measured is not theirs.
PATH = "/usr/local/bin:/usr/bin:/bin"
FILES, COMMITS, FILE_BYTES = 200, 100, 8000


def scratch_dir() -> Path:
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="shunter-bench-", dir=memory if os.access(memory, os.W_OK) else None))


class World:
    """Use as a context: at its end every process that was started for it is ended, and its directory removed."""

    def __init__(
        self, *, slots: int = 1, files: int = FILES, commits: int = COMMITS, file_bytes: int = FILE_BYTES
    ) -> None:
        self.slots = slots
        self.shape = {"files": files, "commits": commits, "file_bytes": file_bytes}
        self.root = scratch_dir()
        self.repo = self.root / "repo"
        self.state = self.root / "state" / "shunter"
        self.data = self.root / "data" / "shunter"
        self.env = {
            "HOME": str(self.root / "home"),
            "PATH": PATH,
            "LANG": "C.UTF-8",
            **{f"XDG_{name.upper()}_HOME": str(self.root / name) for name in ("config", "state", "data", "cache")},
        }

    def __enter__(self) -> World:
        try:
            (self.root / "home").mkdir()
            config = self.root / "config" / "shunter" / "config.toml"
            config.parent.mkdir(parents=True)
            config.write_text(f'[[hosts]]\nname = "local"\nslots = {self.slots}\n')
            make_repository(self.repo, env=self.env, **self.shape)
        except BaseException:
            shutil.rmtree(self.root, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        give_up = time.monotonic() + 5
        while (pids := self.pids()) and time.monotonic() < give_up:
            for pid in pids:
                kill(pid)
            time.sleep(0.02)
        shutil.rmtree(self.root, ignore_errors=True)

    def shunter(self, *words: str) -> str:
        done = subprocess.run(
            [SHUNTER, *words],
            cwd=self.repo,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
        )
        if done.returncode != 0:
            sys.exit(f"bench: shunter {words[0]} failed: {done.stderr.decode(errors='replace')}{self.log()}")
        return done.stdout.decode().strip()

    def json(self, *words: str) -> Any:
        return json.loads(self.shunter(*words, "--json"))

    def wait_settled(self, task_id: str) -> None:
        self.shunter("wait", task_id)

    def log(self) -> str:
        path = self.state / "dispatcher.log"
        return path.read_text() if path.exists() else ""

    # --- processes --------------------------------------------------------------------------------------------------

    def pids(self, word: str = "") -> list[int]:
        """Processes of this world, told by a path of its own in their arguments or environment."""
        return [pid for pid in all_pids() if self._is_ours(pid) and word.encode() in read_proc(pid, "cmdline")]

    def _is_ours(self, pid: int) -> bool:
        tag = str(self.root).encode() + b"/"
        return pid != os.getpid() and (tag in read_proc(pid, "cmdline") or tag in read_proc(pid, "environ"))

    def supervisor_pids(self) -> list[int]:
        """As they introduced themselves; their fork server has the same arguments."""
        told = [json.loads(path.read_bytes())["pid"] for path in self.data.glob("jobs/*/supervisor")]
        return [pid for pid in self.pids("shunter.host.supervisor") if pid in told]

    def dispatcher_pid(self) -> int:
        wait_until(lambda: self.pids("shunter.dispatch"))
        return self.pids("shunter.dispatch")[0]

    def wait_no_dispatcher(self) -> None:
        wait_until(lambda: not self.pids("shunter.dispatch") and not self.pids("\0serve\0"), every_s=0.05)


def make_repository(path: Path, *, env: dict[str, str], files: int, commits: int, file_bytes: int) -> None:
    """`files` text files, each commit changing one of them; made by fast-import, since nobody measures this."""

    def git(*words: str, stdin: bytes = b"") -> None:
        subprocess.run(
            ["git", *words], cwd=path, env=env, input=stdin, check=True, capture_output=True, timeout=LIMIT_S
        )

    path.mkdir(parents=True)
    git("init", "-q", "-b", "main")
    git("config", "user.name", "User")
    git("config", "user.email", "user@example.org")
    git("config", "gc.auto", "0")  # of neither side
    stream = bytearray()
    for number in range(commits):
        stream += b"commit refs/heads/main\ncommitter User <user@example.org> %d +0000\n" % (1700000000 + number)
        stream += b"data 4\nmore\n"
        for file in range(files) if number == 0 else [number % files]:
            text = (b"commit %d of file %d, a line as long as lines are\n" % (number, file) * file_bytes)[:file_bytes]
            stream += b"M 100644 inline src/%d/%d.txt\ndata %d\n%s\n" % (file % 20, file, len(text), text)
    git("fast-import", "--quiet", stdin=bytes(stream))
    git("reset", "-q", "--hard")


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
