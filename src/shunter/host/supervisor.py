"""The process that starts an agent, owns its pipes and outlives everything but the host (S2, S4, S7, S11).

It is as small as Python can be while the agent runs: `os` and a few C modules, no json, no ctypes, no subprocess
(under 5 MiB PSS). What it needs stands in one file of NUL-separated pairs, `start`, written by `launch.py`; whoever
spawns it has made it a subreaper, which survives exec. At the end it becomes the publisher by exec, so pid and start
time stay the same: whoever finds that process dead and no end in the ledger knows that it died (`recovery.py`).

    start -> launch (O_EXCL: at most one launch) -> supervisor (identity) -> spawn -> signals/<attempt>.launched
          -> drain pipes, watch time and cancel -> tree gone (ECHILD) -> signals/<attempt>.exited -> exec publisher

Killing goes by rounds over our own direct children: a child stays ours (a zombie at worst) until we reap it, so its
pid cannot belong to anybody else, and what a killed child leaves behind is adopted by us and meets the next round.
A process that called setsid twice is found like any other.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CHUNK = 65536
LINE_LIMIT = 1 << 20  # a longer line is not searched for the session id
SIGNALS_TO_RESTORE = ("SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGPIPE")


class Spec:
    """The `start` file: keys with one value, and the lists argv, env (K=V) and next (the publisher's argv)."""

    def __init__(self, text: bytes) -> None:
        self.one: dict[bytes, bytes] = {}
        self.argv: list[bytes] = []
        self.env: list[bytes] = []
        self.next: list[bytes] = []
        parts = text.split(b"\0")
        for key, value in zip(parts[0::2], parts[1::2]):
            if key in (b"argv", b"env", b"next"):
                getattr(self, key.decode()).append(value)
            else:
                self.one[key] = value

    def text(self, key: bytes) -> str:
        return os.fsdecode(self.one.get(key, b""))

    def number(self, key: bytes) -> float:
        return float(self.one[key])


class Log:
    """One stream on disk: the head up to the cap that both streams share, then the last bytes in two halves.

    `<name>` holds the head; when the cap is reached `<name>.a` and `<name>.b` are filled by turns, each `tail_bytes`
    long, so at least the last `tail_bytes` are on disk at every moment, whatever happens to this process.
    """

    def __init__(self, path: str, budget: list[int], tail_bytes: int) -> None:
        self.path, self.budget, self.tail_bytes = path, budget, tail_bytes
        self.head = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self.seen = self.kept = 0
        self.half = -1
        self.half_fd = -1
        self.half_used = 0

    def write(self, data: bytes) -> None:
        self.seen += len(data)
        fits = data[: self.budget[0]] if self.half < 0 else b""
        if fits:
            done = _write_all(self.head, fits)
            self.kept += done
            self.budget[0] -= done
            if done < len(fits):
                self.budget[0] = 0  # the disk is full: the gap starts here, the agent never waits for us
        rest = data[len(fits) :]
        while rest:
            if self.half < 0 or self.half_used >= self.tail_bytes:
                self._turn_half()
            piece = rest[: self.tail_bytes - self.half_used]
            _write_all(self.half_fd, piece)
            self.half_used += len(piece)
            rest = rest[len(piece) :]

    def _turn_half(self) -> None:
        if self.half_fd >= 0:
            os.close(self.half_fd)
        self.half = 1 if self.half == 0 else 0
        self.half_used = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            self.half_fd = os.open(self.path + (".a", ".b")[self.half], flags, 0o600)
        except OSError:
            self.half_fd = -1


def _write_all(fd: int, data: bytes) -> int:
    """Bytes written; fewer than given when the disk does not take them."""
    done = 0
    while done < len(data):
        try:
            done += os.write(fd, data[done:])
        except InterruptedError:
            continue
        except OSError:
            break
    return done


class SessionSearch:
    """Finds the session id by bytes: the string value of `key` in the first line that holds `marker`."""

    def __init__(self, marker: bytes, key: bytes) -> None:
        self.marker, self.key = marker, b'"' + key + b'"'
        self.pending = b""
        self.skipping = False
        self.done = not marker

    def feed(self, data: bytes) -> str | None:
        lines = (self.pending + data).split(b"\n")
        self.pending = lines.pop()
        if self.skipping and lines:
            lines.pop(0)
            self.skipping = False
        if len(self.pending) > LINE_LIMIT:
            self.pending, self.skipping = b"", True
        for line in lines:
            if self.marker in line:
                found = self._value(line)
                if found:
                    self.done, self.pending = True, b""
                    return found
        return None

    def _value(self, line: bytes) -> str | None:
        at = line.find(self.key)
        if at < 0:
            return None
        rest = line[at + len(self.key) : at + len(self.key) + 300].lstrip()
        if rest[:1] != b":":
            return None
        rest = rest[1:].lstrip()
        end = rest.find(b'"', 1)
        value = rest[1:end]
        sane = all(byte in b"-_.:" or 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 for byte in value)
        return value.decode() if rest[:1] == b'"' and 0 < len(value) <= 200 and sane else None


def json_line(pairs: Mapping[str, object]) -> bytes:
    """JSON of numbers, None, booleans and strings without control characters; the json module costs 1 MiB."""
    out = []
    for key, value in pairs.items():
        if value is None:
            text = "null"
        elif isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, (int, float)):
            text = repr(value)
        else:
            clean = "".join(c for c in str(value) if " " <= c <= "~")
            text = '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'
        out.append('"' + key + '":' + text)
    return ("{" + ",".join(out) + "}\n").encode()


def write_durably(path: str, data: bytes, *, patient: bool = False) -> None:
    """Write aside, fsync, rename, fsync of the directory. `patient`: wait for room on a full disk, for ever."""
    aside = path + ".new"
    while True:
        try:
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                if _write_all(fd, data) != len(data):
                    raise OSError(errno.ENOSPC, "short write")
                os.fsync(fd)
            finally:
                os.close(fd)
            os.rename(aside, path)
            directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
            return
        except OSError as exc:
            if not patient or exc.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            time.sleep(2)


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat, ticks since boot; None when there is no such process."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return int(os.read(fd, 4096).rpartition(b")")[2].split()[19])
    except (IndexError, OSError):
        return None
    finally:
        os.close(fd)


def poke(run_dir: str, word: str) -> None:
    """Tell every open session of the host that something changed; nobody listening is no error."""
    try:
        names = os.listdir(run_dir)
    except OSError:
        return
    for name in names:
        if not name.endswith(".fifo"):
            continue
        path = os.path.join(run_dir, name)
        try:
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # its reader died
                _unlink(path)
            continue
        try:
            os.write(fd, (word + "\n").encode())
        except OSError:
            pass
        os.close(fd)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def direct_children() -> list[int]:
    """Our own children, adopted ones included, zombies included."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb", 0) as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        found = []
        for name in os.listdir("/proc"):  # a kernel without CONFIG_PROC_CHILDREN
            if name.isdigit():
                try:
                    with open("/proc/" + name + "/stat", "rb", 0) as file:
                        if int(file.read().rpartition(b")")[2].split()[1]) == me:
                            found.append(int(name))
                except (OSError, IndexError, ValueError):
                    pass
        return found


class Supervisor:
    """One attempt, from `start` to the exec of the publisher."""

    def __init__(self, job: str) -> None:
        self.job = job
        with open(os.path.join(job, "start"), "rb", 0) as file:
            self.spec = Spec(file.read())
        self.attempt, self.nonce = self.spec.text(b"attempt"), self.spec.text(b"nonce")
        self.run_dir = self.spec.text(b"run_dir")
        self.child = -1
        self.status: int | None = None
        self.rusage: object = None
        self.reason = "exit"
        self.error = 0
        self.background = 0
        self.cgroup = ""
        self.logs: dict[int, Log] = {}
        self.out = self.err = -1
        self.piped: dict[int, None] = {}
        self.terminated = False
        self.wakeup = os.pipe()

    # --- before the agent -------------------------------------------------------------------------------------------

    def catch_signals(self) -> None:
        for end in self.wakeup:
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(self.wakeup[1], warn_on_full_buffer=False)
        for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGUSR1):
            _signal.signal(number, lambda *_: None)
        for number in (_signal.SIGHUP, _signal.SIGINT):
            _signal.signal(number, _signal.SIG_IGN)

    def introduce(self) -> None:
        me = os.getpid()
        identity = {"pid": me, "start_time": start_time(me), "boot_id": self.spec.text(b"boot_id")}
        write_durably(os.path.join(self.job, "supervisor"), json_line(identity), patient=True)

    def may_launch(self) -> bool:
        """The intent stands before the act, and only once: a second supervisor of this attempt finds it and goes."""
        try:
            fd = os.open(os.path.join(self.job, "launch"), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return False
        os.fsync(fd)
        os.close(fd)
        return True

    def is_cancelled(self) -> bool:
        return os.path.exists(os.path.join(self.job, "cancel"))

    def make_cgroup(self) -> None:
        parent = self.spec.text(b"cgroup")
        if not parent:
            return
        path = os.path.join(parent, "shunter-" + self.attempt)
        try:
            os.mkdir(path)
            self.cgroup = path
        except OSError:
            pass  # subreaper and rounds do without

    def spawn(self) -> None:
        """Fork and exec; a failure of exec comes back through a pipe that a success closes."""
        out, err, told = os.pipe(), os.pipe(), os.pipe()
        pid = os.fork()
        if pid == 0:
            self._become_agent(out[1], err[1], told[1])
        for fd in (out[1], err[1], told[1]):
            os.close(fd)
        self.child, self.out, self.err = pid, out[0], err[0]
        told_text = os.read(told[0], 16)
        os.close(told[0])
        if told_text:
            self.reason, self.error = "spawn_failed", int(told_text)

    def _become_agent(self, out: int, err: int, told: int) -> None:
        try:
            os.setsid()
            if self.cgroup:
                try:
                    with open(os.path.join(self.cgroup, "cgroup.procs"), "wb", 0) as file:
                        file.write(b"0")
                except OSError:
                    pass
            for name in SIGNALS_TO_RESTORE:
                _signal.signal(getattr(_signal, name), _signal.SIG_DFL)
            os.chdir(self.spec.one[b"workspace"])
            prompt = os.open(self.spec.one[b"prompt"], os.O_RDONLY)
            os.dup2(prompt, 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.umask(0o022)
            env = dict(pair.partition(b"=")[::2] for pair in self.spec.env)
            os.execvpe(self.spec.argv[0], self.spec.argv, env)
        except OSError as exc:
            os.write(told, str(exc.errno or errno.EIO).encode())
        os._exit(127)

    # --- while it runs ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        one = self.spec.one
        budget, tail = [int(one[b"cap_bytes"])], int(one[b"tail_bytes"])
        self.logs = {
            self.out: Log(os.path.join(self.job, "stdout"), budget, tail),
            self.err: Log(os.path.join(self.job, "stderr"), budget, tail),
        }
        self.search = SessionSearch(one.get(b"marker", b""), one.get(b"key", b""))
        self.poll = select.poll()
        for fd in (self.out, self.err):
            os.set_blocking(fd, False)
            self.poll.register(fd, select.POLLIN)
        self.poll.register(self.wakeup[0], select.POLLIN)
        now = time.monotonic()
        deadline = now + self.spec.number(b"timeout_s") if self.spec.number(b"timeout_s") else None
        kill_at = None
        while self.status is None:
            now = time.monotonic()
            if kill_at is None and (self._shall_stop() or (deadline is not None and now >= deadline)):
                if self.reason == "exit":
                    self.reason = "timeout"
                kill_at = now + self.spec.number(b"term_grace_s")
                self._signal_group(_signal.SIGTERM)
            if kill_at is not None and now >= kill_at:
                self.kill_round(_signal.SIGKILL)
                kill_at = now + 1
            due = kill_at if kill_at is not None else deadline
            self.wait_events(None if due is None else max(0.0, due - now))
            self.reap()
        self.drain()

    def _shall_stop(self) -> bool:
        if self.is_cancelled():
            self.reason = "cancel"
            return True
        if self.terminated:
            self.reason = "terminated"
            return True
        return False

    def _signal_group(self, number: int) -> None:
        # The agent leads its own session and is not reaped, so its group id is still ours.
        try:
            os.killpg(self.child, number)
        except OSError:
            pass

    def wait_events(self, timeout_s: float | None) -> None:
        for fd, _ in self.poll.poll(None if timeout_s is None else int(timeout_s * 1000) + 1):
            if fd == self.wakeup[0]:
                if bytes([_signal.SIGTERM]) in os.read(fd, 512):
                    self.terminated = True
            else:
                self.read_pipe(fd)

    def read_pipe(self, fd: int) -> bool:
        """True when there may be more to read at once."""
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.poll.unregister(fd)
            os.close(fd)
            del self.piped[fd]
            return False
        self.logs[fd].write(data)
        if fd == self.out and not self.search.done:
            found = self.search.feed(data)
            if found:
                self.bind_session(found)
        return True

    def bind_session(self, session_id: str) -> None:
        write_durably(self.spec.text(b"session_file"), session_id.encode() + b"\n", patient=True)
        poke(self.run_dir, self.attempt)

    def reap(self) -> bool:
        """Collect every child that ended; False once there is none left at all."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.child:
                self.status, self.rusage = status, usage

    def drain(self) -> None:
        """What is in the pipes now; a background process that keeps one open is not waited for."""
        for fd in list(self.piped):
            while self.read_pipe(fd):
                pass

    # --- the end ----------------------------------------------------------------------------------------------------

    def kill_round(self, number: int) -> int:
        children = direct_children()
        for pid in children:
            try:
                os.kill(pid, number)
            except OSError:
                pass
        return len(children)

    def end_tree(self) -> None:
        """Return only when no process of the attempt is left: ECHILD, and an empty cgroup where there is one."""
        if self.reap() and self.reason in ("exit", "spawn_failed"):
            self.background = self.kill_round(_signal.SIGTERM)
            give_up = time.monotonic() + self.spec.number(b"background_grace_s")
            while time.monotonic() < give_up and self.reap():
                self.wait_events(0.05)
        pause_s = 0.001
        while self.reap() or not self.cgroup_is_empty():
            if self.cgroup:
                try:
                    with open(os.path.join(self.cgroup, "cgroup.kill"), "wb", 0) as file:
                        file.write(b"1")
                except OSError:
                    pass
            self.kill_round(_signal.SIGKILL)
            self.wait_events(pause_s)
            pause_s = min(1.0, pause_s * 2)
        self.drain()
        if self.cgroup:
            try:
                os.rmdir(self.cgroup)
            except OSError:
                pass

    def cgroup_is_empty(self) -> bool:
        if not self.cgroup:
            return True
        try:
            with open(os.path.join(self.cgroup, "cgroup.events"), "rb", 0) as file:
                return b"populated 0" in file.read()
        except OSError:
            return True

    def signal_file(self, kind: str, **facts: object) -> None:
        path = os.path.join(self.spec.text(b"signals"), self.attempt + "." + kind)
        pairs = {"attempt": self.attempt, "nonce": self.nonce, "at": time.time(), "monotonic": time.monotonic()}
        write_durably(path, json_line({**pairs, **facts}), patient=True)
        poke(self.run_dir, self.attempt)

    def report_exit(self) -> None:
        status = self.status
        signalled = status is not None and os.WIFSIGNALED(status)
        code = os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None
        out, err = self.logs.get(self.out), self.logs.get(self.err)
        usage = self.rusage
        self.signal_file(
            "exited",
            reason=self.reason,
            errno=self.error,
            exit_code=None if self.reason == "spawn_failed" else code,
            signal=os.WTERMSIG(status) if signalled and status is not None else None,
            background=self.background,
            stdout_bytes=out.seen if out else 0,
            stdout_kept=out.kept if out else 0,
            stderr_bytes=err.seen if err else 0,
            stderr_kept=err.kept if err else 0,
            cpu_s=usage.ru_utime + usage.ru_stime if usage else None,  # type: ignore[attr-defined]
            peak_rss_kib=usage.ru_maxrss if usage else None,  # type: ignore[attr-defined]
        )

    def supervise(self) -> None:
        self.catch_signals()
        if not self.may_launch():
            return
        self.introduce()
        if self.is_cancelled():
            self.reason = "cancel"
        else:
            self.make_cgroup()
            self.spawn()
            self.piped = {self.out: None, self.err: None}
            if self.reason != "spawn_failed":
                self.signal_file("launched", pid=self.child, start_time=start_time(self.child), supervisor=os.getpid())
            self.run()
            self.end_tree()
        self.report_exit()
        self.become_publisher()

    def become_publisher(self) -> None:
        for number in (_signal.SIGTERM, _signal.SIGUSR1):
            _signal.signal(number, _signal.SIG_IGN)  # stays ignored across exec: a late cancel cannot hit the publisher
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        _signal.set_wakeup_fd(-1)
        os.execv(self.spec.next[0], self.spec.next)


def main() -> None:
    Supervisor(sys.argv[1]).supervise()
