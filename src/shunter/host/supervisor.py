"""The process that starts an agent, owns its pipes and outlives everything but the host (S2, S4, S7, S11).

It is as small as Python can be while the agent runs: `os` and a few C modules, no json, no ctypes, no subprocess
(3.5 MiB PSS, of which the bare interpreter is 3.1). What it needs stands in one file of NUL-separated pairs, `start`,
written by `jobs`; whoever spawns it has made it a subreaper, which survives exec. At the end it has a session's fork
server publish, or loads the publisher and goes on as that. Pid and start time stay the same until the attempt is ended:
whoever finds that process dead and no end in the ledger knows that it died (`recovery`).

    start -> supervisor (identity; created only once, so there is at most one launch) -> spawn -> .launched
          -> drain pipes, watch time, bell and cancel -> tree gone (ECHILD) -> .exited -> publisher

Killing goes by rounds over our own direct children: a child stays ours (a zombie at worst) until we reap it, so its
pid cannot belong to anybody else, and what a killed child leaves behind is adopted by us and meets the next round.
A process that called setsid twice is found like any other.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import gc
import os
import select
import sys
import time

from .bell import heard, open_bell, ring_sessions
from .durable import create_durably, json_line, open_regular, write_durably
from .output import Log, SessionSearch, Times
from .patience import Patience, may_pass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

CHUNK = 65536
LONGEST_WAIT_S = 3600.0  # poll(2) counts milliseconds in an int
LOOK_AGAIN_S = 1.0
# A pipe holds 1 MiB at most by default; whoever still writes after the end of the tree is not ours.
LAST_READS = 64


class Spec:
    """The `start` file: keys with one value, and the lists argv and env (K=V)."""

    def __init__(self, text: bytes) -> None:
        self.one: dict[bytes, bytes] = {}
        self.argv: list[bytes] = []
        self.env: list[bytes] = []
        parts = text.split(b"\0")
        for key, value in zip(parts[0::2], parts[1::2]):
            if key in (b"argv", b"env"):
                getattr(self, key.decode()).append(value)
            else:
                self.one[key] = value

    def text(self, key: bytes) -> str:
        return os.fsdecode(self.one.get(key, b""))

    def number(self, key: bytes) -> float:
        return float(self.one[key])


def read_start(job: str) -> Spec:
    with open(open_regular(os.path.join(job, "start")), "rb", 0) as file:
        return Spec(file.read())


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat, ticks since boot; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb", 0) as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (IndexError, OSError):
        return None


def read_boot_id() -> str:
    """The kernel's id of this boot; empty where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb", 0) as file:
            return file.read().decode().strip()
    except OSError:
        return ""


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


def oom_kills(file: str) -> int | None:
    """How many processes the kernel has ended for want of memory; None where it does not count them.

    A line of /proc/vmstat for the whole machine (Linux 4.13), of memory.events for a cgroup with a memory controller.
    """
    try:
        with open(file, "rb", 0) as counters:
            for line in counters.read().splitlines():
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def _signal_to(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass


class Cgroup:
    """The attempt's own group (version 2) below the one that `start` names; without one it does nothing."""

    def __init__(self, parent: str, attempt: str) -> None:
        self.path = os.path.join(parent, "shunter-" + attempt) if parent else ""
        try:
            if self.path:
                os.mkdir(self.path)
        except FileExistsError:
            pass
        except OSError:
            self.path = ""  # subreaper and rounds do without

    def write(self, name: str, text: bytes) -> None:
        try:
            if self.path:
                with open(os.path.join(self.path, name), "wb", 0) as file:
                    file.write(text)
        except OSError:
            pass

    def is_empty(self) -> bool:
        try:
            with open(os.path.join(self.path, "cgroup.events"), "rb", 0) as file:
                return b"populated 0" in file.read()
        except OSError:
            return True

    def oom_kills(self) -> int | None:
        return oom_kills(os.path.join(self.path, "memory.events")) if self.path else None

    def remove(self) -> None:
        try:
            if self.path:
                os.rmdir(self.path)
        except OSError:
            pass


class Supervisor:
    """One attempt, from `start` to its publication."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.spec = read_start(job)
        self.attempt, self.nonce = self.spec.text(b"attempt"), self.spec.text(b"nonce")
        self.identity: dict[str, object] = {}
        self.child = -1
        self.status: int | None = None
        self.rusage: object = None
        self.reason = "exit"
        self.error = 0
        self.cancelled = self.terminated = False
        self.oom_before: int | None = None  # on the whole machine, and below in the cgroup of the attempt
        self.oom_group: int | None = None
        self.background = 0  # processes that an agent left running when it exited by itself
        self.told: set[int] = set()
        self.logs: dict[str, Log] = {}
        self.piped: dict[int, Log] = {}
        self.times: dict[int, Times] = {}
        self.owed: list[tuple[str, bytes]] = []  # what a full disk did not take yet
        self.pay_at = 0.0
        self.search = SessionSearch(self.spec.one.get(b"marker", b""), self.spec.one.get(b"key", b""))
        self.poll = select.poll()
        self.wakeup = os.pipe()
        self.bell = -1

    # --- before the agent -------------------------------------------------------------------------------------------

    def catch_signals(self) -> None:
        for end in self.wakeup:
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(self.wakeup[1], warn_on_full_buffer=False)
        for number in (_signal.SIGCHLD, _signal.SIGTERM):
            _signal.signal(number, lambda *_: None)
        for number in (_signal.SIGHUP, _signal.SIGINT):
            _signal.signal(number, _signal.SIG_IGN)
        self.poll.register(self.wakeup[0], select.POLLIN)

    def introduce(self) -> bool:
        """The intent stands before the act, and only once: a second supervisor of this attempt finds it and goes."""
        me = os.getpid()
        self.identity = {"pid": me, "start_time": start_time(me), "boot_id": read_boot_id()}
        place = {"host_id": self.spec.text(b"host_id"), "os": sys.platform}
        return create_durably(os.path.join(self.job, "supervisor"), json_line({**place, **self.identity}))

    def hang_bell(self) -> None:
        """Before the first look for a cancel, so none falls between; without a bell we look once a second."""
        try:
            self.bell = open_bell(os.path.join(self.job, "bell"))
            self.poll.register(self.bell, select.POLLIN)
        except OSError:
            pass

    def is_cancelled(self) -> bool:
        return self.cancelled or os.path.exists(os.path.join(self.job, "cancel"))

    def spawn(self) -> bool:
        """Fork and exec; a failure comes back through a pipe that a success closes."""
        out, err, told = os.pipe(), os.pipe(), os.pipe()
        try:
            pid = os.fork()
        except OSError as exc:
            self.reason, self.error = "spawn_failed", exc.errno or errno.EAGAIN
            return False
        if pid == 0:
            self._become_agent(out[1], err[1], told[1])
        self.child = pid
        for fd in (out[1], err[1], told[1]):
            os.close(fd)
        told_text = os.read(told[0], 64).split()
        os.close(told[0])
        if told_text:
            self.reason, self.error = told_text[0].decode(), int(told_text[1])
            return False
        budget, tail_bytes = [int(self.spec.number(b"cap_bytes"))], int(self.spec.number(b"tail_bytes"))
        for name, fd in (("stdout", out[0]), ("stderr", err[0])):
            path = os.path.join(self.job, name)
            self.logs[name] = self.piped[fd] = Log(path, budget, tail_bytes)
            self.times[fd] = Times(path)
            os.set_blocking(fd, False)
            self.poll.register(fd, select.POLLIN)
        return True

    def _become_agent(self, out: int, err: int, told: int) -> None:
        """A session of its own without a terminal, the prompt as its input, no signal ignored or blocked."""
        reason, error = "spawn_failed", errno.EIO
        try:
            os.setsid()
            self.cgroup.write("cgroup.procs", b"0")
            for number in range(1, _signal.NSIG):
                try:
                    _signal.signal(number, _signal.SIG_DFL)
                except (OSError, ValueError):
                    pass
            _signal.pthread_sigmask(_signal.SIG_SETMASK, [])
            reason = "workspace_lost"
            os.chdir(self.spec.one[b"workspace"])
            reason = "spawn_failed"
            os.dup2(os.open(self.spec.one[b"prompt"], os.O_RDONLY | os.O_CLOEXEC), 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            os.umask(0o022)
            self._exec()
        except OSError as exc:
            error = exc.errno or error
        finally:
            os.write(told, f"{reason} {error}".encode())
            os._exit(127)

    def _exec(self) -> None:
        """As execvp(3): a program that may not be run counts for more than one that is not there."""
        argv = self.spec.argv
        env = dict(pair.partition(b"=")[::2] for pair in self.spec.env)
        places = [b""] if b"/" in argv[0] else [each or b"." for each in env.get(b"PATH", b"/bin:/usr/bin").split(b":")]
        failure = FileNotFoundError(errno.ENOENT, "")
        for place in places:
            try:
                os.execve(os.path.join(place, argv[0]), argv, env)
            except (FileNotFoundError, NotADirectoryError):
                pass
            except OSError as exc:
                failure = exc  # type: ignore[assignment]
        raise failure

    # --- while it runs ----------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Until the agent itself has ended."""
        began = time.monotonic()
        timeout_s = self.spec.number(b"timeout_s")
        deadline = began + timeout_s if timeout_s else began + 1e12
        stopping = False
        while self.status is None:
            now = time.monotonic()
            if stopping and now >= deadline:
                self.kill_round(_signal.SIGKILL)
                deadline = now + LOOK_AGAIN_S
            elif not stopping and self.shall_stop(is_late=now >= deadline):
                stopping = True
                deadline = now + self.spec.number(b"term_grace_s")
                self._terminate_agent()
            if self.owed and now >= self.pay_at:
                self.pay()
            self.wait_events(deadline - now)
            self.reap()

    def shall_stop(self, *, is_late: bool) -> bool:
        if self.is_cancelled():
            self.reason = "cancel"
        elif self.terminated:
            self.reason = "terminated"
        elif is_late:
            self.reason = "timeout"
        return self.reason != "exit"

    def _terminate_agent(self) -> None:
        """Its own group only: what it started elsewhere is its to end, and is told by `end_tree` when it did not."""
        try:
            os.killpg(self.child, _signal.SIGTERM)  # it leads its session and is not reaped: the group is still ours
        except OSError:
            pass

    def wait_events(self, timeout_s: float) -> None:
        longest_s = LOOK_AGAIN_S if self.owed or self.bell < 0 else LONGEST_WAIT_S
        for fd, _ in self.poll.poll(int(max(0.0, min(timeout_s, longest_s)) * 1000) + 1):
            if fd == self.wakeup[0]:
                if _signal.SIGTERM in os.read(fd, 512):
                    self.terminated = True
            elif fd == self.bell:
                if "cancel" in heard(fd):
                    self.cancelled = True
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
        log = self.piped[fd]
        if not data:
            self.poll.unregister(fd)
            os.close(fd)
            del self.piped[fd]
            return False
        self.times[fd].note(log.seen, data, time.time())
        log.write(data)
        if not self.search.done and log is self.logs["stdout"]:
            found = self.search.feed(data)
            if found:
                self.tell(self.spec.text(b"session_file"), found.encode() + b"\n")
        return True

    def reap(self) -> bool:
        """Collect every child that ended; False once there is none left at all."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self.told.discard(pid)
            if pid == self.child:
                self.status, self.rusage = status, usage

    # --- telling ----------------------------------------------------------------------------------------------------

    def tell(self, path: str, data: bytes) -> None:
        """Write a file, at once or as soon as the disk takes it: the agent never waits for us."""
        self.owed.append((path, data))
        self.pay()

    def owe_signal(self, kind: str, **facts: object) -> None:
        pairs = {"attempt": self.attempt, "nonce": self.nonce, "at": time.time(), "monotonic": time.monotonic()}
        path = os.path.join(self.spec.text(b"signals"), self.attempt + "." + kind)
        self.owed.append((path, json_line({**pairs, **facts})))

    def pay(self) -> OSError | None:
        """Write what is owed; the reason why something is still owed."""
        while self.owed:
            try:
                write_durably(*self.owed[0])
            except OSError as exc:
                self.pay_at = time.monotonic() + LOOK_AGAIN_S
                return exc
            self.owed.pop(0)
            if self.status is None:  # after its end, only what is made of it is news
                ring_sessions(self.spec.text(b"run_dir"), self.attempt)
        return None

    # --- the end ----------------------------------------------------------------------------------------------------

    def kill_round(self, number: int) -> None:
        for pid in direct_children():
            _signal_to(pid, number)

    def end_tree(self) -> None:
        """Return only when no process of the attempt is left: ECHILD, and an empty cgroup where there is one."""
        self.end_gently()
        pause_s = 0.001
        while self.reap() or not self.cgroup.is_empty():
            self.cgroup.write("cgroup.kill", b"1")
            self.kill_round(_signal.SIGKILL)
            self.wait_events(pause_s)
            pause_s = min(1.0, pause_s * 2)
        for fd in list(self.piped):
            for _ in range(LAST_READS):
                if not self.read_pipe(fd):
                    break
        self.oom_group = self.cgroup.oom_kills()
        self.cgroup.remove()

    def end_gently(self) -> None:
        """SIGTERM once to each process that is left, as it becomes ours, and a grace for all of them together."""
        give_up = time.monotonic() + self.spec.number(b"background_grace_s")
        while self.reap() and time.monotonic() < give_up:
            for pid in set(direct_children()) - self.told:
                self.told.add(pid)
                self.background += self.reason == "exit"
                _signal_to(pid, _signal.SIGTERM)
            self.wait_events(0.05)

    def report_exit(self) -> None:
        status, usage = self.status, self.rusage
        ran = status is not None and self.reason not in ("spawn_failed", "workspace_lost")
        out, err = self.logs.get("stdout"), self.logs.get("stderr")
        oom_before, oom_after = self.oom_before, oom_kills("/proc/vmstat")
        self.owe_signal(
            "exited",
            reason=self.reason,
            errno=self.error,
            exit_code=os.WEXITSTATUS(status) if ran and os.WIFEXITED(status) else None,  # type: ignore[arg-type]
            signal=os.WTERMSIG(status) if ran and os.WIFSIGNALED(status) else None,  # type: ignore[arg-type]
            background=self.background,
            stdout_bytes=out.seen if out else 0,
            stderr_bytes=err.seen if err else 0,
            cpu_s=usage.ru_utime + usage.ru_stime if usage else None,  # type: ignore[attr-defined]
            peak_rss_kib=usage.ru_maxrss if usage else None,  # type: ignore[attr-defined]
            oom_group=self.oom_group,
            oom_machine=None if oom_before is None or oom_after is None else oom_after - oom_before,
        )
        patience = Patience(self.spec.text(b"data_root"), self.spec.text(b"host_id"))
        while True:
            exc = self.pay() if patience.stands() else FileNotFoundError(errno.ENOENT, "no data root", patience.root)
            if exc is None:
                return
            if not may_pass(exc) or not patience.wait():
                raise exc

    def supervise(self) -> None:
        self.catch_signals()
        if not self.introduce():
            return
        self.hang_bell()
        if self.is_cancelled():
            self.reason = "cancel"
        else:
            self.cgroup = Cgroup(self.spec.text(b"cgroup"), self.attempt)
            self.oom_before = oom_kills("/proc/vmstat")
            try:
                if self.spawn():
                    pid, ours = self.child, {"supervisor_" + name: value for name, value in self.identity.items()}
                    self.owe_signal("launched", pid=pid, start_time=start_time(pid), **ours)
                    self.pay()
                    self.watch()
            finally:
                self.end_tree()  # also when a fault of ours ends this process
        self.report_exit()
        self.become_publisher()

    def become_publisher(self) -> None:
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGTERM, _signal.SIG_IGN)  # a late cancel finds no bell
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        from .forkserver import end_by_fork

        if not end_by_fork(self.spec.text(b"run_dir"), self.attempt):
            from .ending import end_attempt  # only now: while the agent runs, its modules would weigh thrice ours

            end_attempt(self.spec.text(b"data_root"), self.attempt)


def run(job: str) -> NoReturn:
    """From `start` to the end of the process."""
    gc.set_threshold(100_000)  # little here is cyclic, and of what is imported nothing dies before the process
    Supervisor(job).supervise()
    sys.stderr.flush()
    os._exit(0)  # what an interpreter takes apart at its end, the kernel takes back at once


def main() -> None:
    """argv: the job; without one, those that a session names (`forkserver`)."""
    if len(sys.argv) > 1:
        run(sys.argv[1])
    from .forkserver import start_supervisors

    start_supervisors(run)
