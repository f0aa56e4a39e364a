"""Two fork servers of a session, since an interpreter and its modules are most of what a turn costs a host.

One starts supervisors: a process that has loaded what a supervisor needs and no more, so its forks stay as small. It
reads paths of jobs from the session, a line each, and answers each with an errno, 0 once it has forked.

One ends turns: a copy of the session, which has the publisher loaded already, most of a supervisor's processor time. It
is forked before the session has threads or an open database, and listens at `run/<version>.<pid>.ends`. A
supervisor whose agent is gone connects there and gets a fork of that copy, which ends its attempt; it waits meanwhile,
so its identity stands until the end is in the ledger.

Both go when their session does; what they started stays. Nothing depends on them: where one is gone, silent or of
another version, a supervisor is started by exec and loads the publisher itself. A second supervisor of an attempt finds
the first one's identity and goes; ends may be repeated, and the task's lock keeps two apart.
"""

from __future__ import annotations

import errno
import os

from .durable import remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket
    from typing import Callable, NoReturn

PR_SET_CHILD_SUBREAPER = 36
SUFFIX = ".ends"
ANSWER_LIMIT_S = 5.0
BEGUN, ENDED = b"b", b"e"
LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
VERSION = os.path.basename(LIBRARY)  # its directory: another version may judge and record in its own way


# --- starts ---------------------------------------------------------------------------------------------------------


def start_supervisors(run: Callable[[str], NoReturn]) -> NoReturn:
    """`run` each job that is named on stdin, until its end, in a fork."""
    import _signal  # type: ignore[import-not-found]
    import ctypes  # half a MiB, which forks share as long as we are there

    prctl = ctypes.CDLL(None).prctl
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)  # no zombies
    rest = b""
    while True:
        given = os.read(0, 65536)
        if not given:
            os._exit(0)
        *jobs, rest = (rest + given).split(b"\n")
        for job in jobs:
            try:
                is_ours = os.fork() == 0
            except OSError as exc:
                os.write(1, b"%d\n" % (exc.errno or errno.EAGAIN))
                continue
            if is_ours:
                prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # no fork inherits it
                _become_supervisor(run, os.fsdecode(job))
            os.write(1, b"0\n")


def _become_supervisor(run: Callable[[str], NoReturn], job: str) -> NoReturn:
    import sys

    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        log = os.open(os.path.join(job, "supervisor.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for ours, standard in ((nowhere, 0), (nowhere, 1), (log, 2)):
            os.dup2(ours, standard)
        os.close(nowhere)
        os.close(log)
        run(job)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


# --- ends, in the supervisor: nothing is imported before the agent is gone -----------------------------------------


def end_by_fork(run_dir: str, attempt_id: str) -> bool:
    """Have a fork server end the attempt; False when it is not known that it did."""
    return any(_is_ended_by(run_dir, name, attempt_id) for name in _servers(run_dir))


def _servers(run_dir: str) -> list[str]:
    try:
        return [each for each in os.listdir(run_dir) if each.startswith(VERSION + ".") and each.endswith(SUFFIX)]
    except OSError:
        return []


def _is_ended_by(run_dir: str, name: str, attempt_id: str) -> bool:
    import _socket  # `socket` loads half of what is to be spared

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        os.chdir(run_dir)  # a socket's path may have 107 bytes
        connection.settimeout(ANSWER_LIMIT_S)
        connection.connect(name)
        connection.send(attempt_id.encode())
        if connection.recv(1) != BEGUN:
            return False
        connection.settimeout(None)  # a fork that dies closes it
        return bool(connection.recv(1) == ENDED)
    except OSError as exc:
        if exc.errno == errno.ECONNREFUSED:
            remove(name)  # it has its name only while it listens
        return False
    finally:
        connection.close()
        os.chdir("/")


# --- ends, in the session --------------------------------------------------------------------------------------------


def start_fork_server(data_root: str, run_dir: str) -> None:
    """Only before the process has threads or an open database, since neither lives on in a fork.

    The copy goes when this process does: the write end of a pipe stays open until then.
    """
    over, held = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        return  # the account may not start another process; supervisors do without
    if pid == 0:
        try:
            os.close(held)
            _serve(data_root, run_dir, over)
        finally:
            os._exit(0)
    os.close(over)


def _serve(data_root: str, run_dir: str, over: int) -> None:
    import select
    import signal
    import socket

    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):  # or the session's streams would stay open as long as we do
        os.dup2(nowhere, fd)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    os.chdir(run_dir)
    for left in os.listdir("."):  # by sessions that ended with the machine
        if left.endswith(SUFFIX) and not os.path.exists("/proc/" + left.split(".")[-2]):
            remove(left)
    name = f"{VERSION}.{os.getppid()}{SUFFIX}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    remove(name + ".new")
    listener.bind(name + ".new")
    listener.listen(64)
    os.rename(name + ".new", name)
    is_loaded = False
    poll = select.poll()
    for each in (listener.fileno(), over):
        poll.register(each, select.POLLIN)
    while all(fd != over for fd, _ in poll.poll()):
        connection, _ = listener.accept()
        if not is_loaded:
            is_loaded = True
            _load_publisher()
        try:
            if os.fork() == 0:
                listener.close()
                os.close(over)
                _end(data_root, connection)
        except OSError:
            pass  # the supervisor sees its connection closed
        connection.close()
    remove(name)


def _load_publisher() -> None:
    """What an end loads when it comes to that, for all forks to come; not before the first, many sessions have none."""
    import gc
    import zoneinfo  # noqa: F401

    from ..agents import table
    from . import ending  # noqa: F401

    for name in table.MODULES:
        table.load(name)
    gc.set_threshold(100_000)  # a collection would touch, and so copy, the pages of all that is shared
    gc.freeze()


def _end(data_root: str, connection: socket) -> None:
    import signal

    from .ending import end_attempt

    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir("/")
        connection.settimeout(ANSWER_LIMIT_S)
        attempt_id = connection.recv(256).decode()
        connection.send(BEGUN)
        end_attempt(data_root, attempt_id)
        connection.send(ENDED)
    finally:
        os._exit(0)  # without a word where it failed: the supervisor meets the same and has a file for it
