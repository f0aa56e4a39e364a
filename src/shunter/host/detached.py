"""Processes that outlive the session of whoever asked for them.

logind may end what a session leaves behind (KillUserProcesses). A user scope below a user manager that lingers is
out of its reach; without lingering that manager is ended too, and `host check` names the setting.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import subprocess
from typing import IO, Dict, List, Sequence, Union

from .forkserver import PR_SET_CHILD_SUBREAPER

TRY_LIMIT_S = 5.0
LINGERING = "/var/lib/systemd/linger"  # a file for each user who does; what `loginctl show-user` reads

_libc = ctypes.CDLL(None, use_errno=True)


def spawn_detached(
    argv: Sequence[str], *, output: Union[int, IO[bytes]] = subprocess.DEVNULL, subreaper: bool = False
) -> subprocess.Popen[bytes]:
    """In a session of its own, without a terminal, and in a user scope where that is what survives; its own pid."""
    scope = user_scope()
    return subprocess.Popen(
        [*scope, *argv],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        env={**own_environment(), **({"XDG_RUNTIME_DIR": runtime_directory()} if scope else {})},
        start_new_session=True,
        preexec_fn=_become_subreaper if subreaper else None,  # noqa: PLW1509 (one call into a library that is loaded)
    )


def _become_subreaper() -> None:
    # Between fork and exec. The attribute survives exec, so the supervisor itself needs no ctypes (0.5 MiB).
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def own_environment() -> Dict[str, str]:
    """Of our own programs that outlive a session: they must not carry the tag of a turn that home runs in."""
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": os.environ.get("HOME", "/")}


def lingers() -> bool:
    """Whether the account's user manager goes on without a session."""
    return os.path.exists(os.path.join(LINGERING, pwd.getpwuid(os.getuid()).pw_name))


def runtime_directory() -> str:
    return f"/run/user/{os.getuid()}"


def user_scope() -> List[str]:
    """What stands before a command to run it in a user scope by exec; nothing where that does not help or work.

    Tried each time (30 ms, where the account lingers only): a manager that went away since must not cost a turn.
    """
    program = shutil.which("systemd-run")
    if program is None or not lingers() or not os.path.exists(runtime_directory() + "/systemd/private"):
        return []
    words = [program, "--user", "--scope", "--quiet", "--collect", "--"]
    try:
        tried = subprocess.run(
            [*words, "true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**own_environment(), "XDG_RUNTIME_DIR": runtime_directory()},
            timeout=TRY_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return words if tried.returncode == 0 else []
