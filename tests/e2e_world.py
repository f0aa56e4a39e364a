"""Home and host of one end-to-end test: own HOME and XDG directories, a real repository, the installed command."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

SHUNTER = str(Path(sys.executable).parent / "shunter")
LIMIT_S = 60


class World:
    def __init__(self, root: Path, *, slots: int = 2) -> None:
        self.root = root
        self.program = SHUNTER
        self.home = root / "home"
        self.repo = root / "repo"
        self.marks = root / "marks"  # agents write here, outside of their workspaces
        for path in (self.home, self.repo, self.marks):
            path.mkdir()
        self.env = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(root / "config"),
            "XDG_STATE_HOME": str(root / "state"),
            "XDG_DATA_HOME": str(root / "data"),
            "XDG_CACHE_HOME": str(root / "cache"),
        }
        self.state = root / "state" / "shunter"
        self.data = root / "data" / "shunter"
        self.config = root / "config" / "shunter" / "config.toml"
        self.config.parent.mkdir(parents=True)
        self.configure(slots=slots)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "User")
        self.git("config", "user.email", "user@example.org")
        (self.repo / "a.txt").write_text("one\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "first")
        self.started: list[subprocess.Popen] = []

    def configure(self, *, slots: int = 2, limits: str = "", more: str = "") -> None:
        self.config.write_text(
            f'[[hosts]]\nname = "local"\nslots = {slots}\n\n'
            f"[limits]\nterm_grace_s = 1\nquiet_s = 1\nbackground_grace_s = 1\n{limits}\n{more}\n"
        )

    def git(self, *words: str, cwd: Path | None = None) -> str:
        env = {**self.env, "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *words], cwd=cwd or self.repo, env=env, check=True, capture_output=True, timeout=LIMIT_S
        )
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def start(self, *words: str, **options) -> subprocess.Popen:
        """The command in the background; ended with the world at the latest."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, **options}
        child = subprocess.Popen([self.program, *words], cwd=self.repo, env=self.env, **options)
        self.started.append(child)
        return child

    def run(self, *words: str, status: int | None = 0, stdin: bytes = b"", cwd: Path | None = None, env=None):
        """The installed command; its exit status is part of the expectation unless `status` is None."""
        done = subprocess.run(
            [self.program, *words],
            cwd=cwd or self.repo,
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            timeout=LIMIT_S,
        )
        if status is not None:
            assert done.returncode == status, (done.returncode, done.stdout, done.stderr, self.log())
        return done

    def out(self, *words: str, **options) -> str:
        return self.run(*words, **options).stdout.decode("utf-8", "replace").strip()

    def json(self, *words: str, **options):
        return json.loads(self.run(*words, "--json", **options).stdout.splitlines()[-1])

    def submit(self, script: str, *words: str, prompt: str = "do it", **options) -> str:
        """A task for `exec:sh -c script`; its id."""
        return self.out("submit", "-a", f"exec:sh -c {quoted(script)}", *words, prompt, **options)

    def wait(self, *ids: str, status: int | None = None) -> list[dict]:
        self.run("wait", *ids, "--timeout", "50s", status=status)
        return [self.json("status", each) for each in ids]

    def log(self) -> str:
        path = self.state / "dispatcher.log"
        return path.read_text() if path.exists() else ""

    def launches(self, name: str = "launches") -> int:
        path = self.marks / name
        return len(path.read_text().splitlines()) if path.exists() else 0

    # --- what must hold afterwards ----------------------------------------------------------------------------------

    def ledger(self, sql: str) -> list[tuple]:
        with sqlite3.connect(self.data / "ledger.db", timeout=30) as db:
            return db.execute(sql).fetchall()

    def store(self, sql: str) -> list[tuple]:
        with sqlite3.connect(self.state / "store.db", timeout=30) as db:
            return db.execute(sql).fetchall()

    def tagged_processes(self) -> list[int]:
        """Processes of agents of this world: their environment names a workspace below its data root."""
        tag = f"SHUNTER_WORKSPACE={self.data}".encode()
        return [pid for pid, environ in environments() if tag in environ]

    def leftovers(self) -> list[str]:
        """Temporary files that something forgot."""
        patterns = ("*.new", ".*.new", "*.building-*", ".*.building-*", "tmp_*", "incoming-*", "*.lock.tmp")
        roots = (self.state, self.data)
        return [str(path) for root in roots for pattern in patterns for path in root.rglob(pattern)]

    def files_with(self, text: bytes) -> list[str]:
        """Records of home and host that hold the text; the private files of a turn and a task's brief are none."""
        found = []
        for root in (self.state, self.data):
            for path in root.rglob("*"):
                private = path.name == "start" or path.parent.name == "prompts"
                if path.is_file() and not private and text in path.read_bytes():
                    found.append(str(path))
        return found

    def assert_nothing_left_over(self) -> None:
        assert self.ledger("SELECT attempt_id FROM lease") == []
        assert self.store("SELECT turn_id FROM queue") == []
        assert self.tagged_processes() == []
        assert self.leftovers() == []

    def fingerprint(self) -> str:
        """Of every byte of the user's repository, its time stamps of index and HEAD included."""
        found = hashlib.sha256()
        for path in sorted(self.repo.rglob("*")):
            found.update(str(path.relative_to(self.repo)).encode("utf-8", "surrogateescape"))
            if path.is_file() and not path.is_symlink():
                found.update(path.read_bytes())
        stat = (self.repo / ".git" / "index").stat()
        found.update(str((stat.st_mtime_ns, stat.st_ino)).encode())
        return found.hexdigest()

    def dispatcher_pids(self) -> list[int]:
        tag = f"XDG_STATE_HOME={self.root / 'state'}".encode()
        return [pid for pid, environ in environments() if tag in environ and b"shunter.dispatch" in cmdline(pid)]

    def helper_pids(self) -> list[int]:
        """Sessions, without their fork servers."""
        found = self._pids_with(b"\0serve\0")
        return [pid for pid in found if parent_of(pid) not in found]

    def supervisor_pids(self) -> list[int]:
        """As they introduced themselves."""
        told = [json.loads(path.read_bytes())["pid"] for path in self.data.glob("jobs/*/supervisor")]
        return [pid for pid in self._pids_with(b"shunter.host.supervisor") if pid in told]

    def _pids_with(self, word: bytes) -> list[int]:
        return [pid for pid in pids() if word in cmdline(pid) and str(self.data).encode() in cmdline(pid)]

    def close(self) -> None:
        for child in self.started:
            if child.poll() is None:
                child.kill()
                child.wait()
        ours = [*self._pids_with(b"shunter.host.supervisor"), *self._pids_with(b"\0serve\0")]
        for pid in [*self.dispatcher_pids(), *self.tagged_processes(), *ours]:
            kill(pid)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def parent_of(pid: int) -> int:
    """0 when there is no such process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def environments():
    for pid in pids():
        try:
            yield pid, Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def eventually(check, *, limit_s: float = 30.0, every_s: float = 0.02):
    """The first truthy answer; fails the test when there is none in time."""
    give_up = time.monotonic() + limit_s
    while True:
        found = check()
        if found:
            return found
        assert time.monotonic() < give_up, f"did not happen within {limit_s} s: {check}"
        time.sleep(every_s)
