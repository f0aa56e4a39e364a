"""The environment of an agent (T17): the account's own, one named profile, what shunter adds. Records hold names only.

The account's environment is what its login shell exports, captured once and kept for 15 minutes in `login_env`
(0600); nothing of the session that started us comes in. The shell gets ten seconds and prints between two markers, so
banners and prompts do no harm, nor does a daemon of its start-up files that keeps the pipe open; without an answer the
bare minimum is used.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import stat
import subprocess
import time
from typing import Dict, List, Optional

from ..wire.errors import ShunterError
from ..wire.ids import is_host_name, new_nonce
from .durable import open_regular, write_durably
from .layout import Layout

KEPT_S = 900
SHELL_LIMIT_S = 10.0
ANSWER_LIMIT_BYTES = 4 << 20
# Set by a shell for itself, or by the session that the shell was started in.
NOT_OURS = ("_", "SHLVL", "PWD", "OLDPWD", "PS1", "TERM", "DISPLAY", "WAYLAND_DISPLAY", "SSH_TTY")
NOT_OURS_PREFIXES = ("SHUNTER_", "GIT_", "DBUS_", "VIRTUAL_ENV", "PYTHON")
KEY_AGENT = "SSH_AUTH_SOCK"  # for what we do with origin; an agent never gets it


def minimal_environment() -> Dict[str, str]:
    account = pwd.getpwuid(os.getuid())
    home = os.environ.get("HOME") or account.pw_dir
    path = "/usr/local/bin:/usr/bin:/bin"
    return {
        "HOME": home,
        "USER": account.pw_name,
        "LOGNAME": account.pw_name,
        "SHELL": account.pw_shell or "/bin/sh",
        "PATH": path if os.getuid() else "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": os.environ.get("LANG", "C.UTF-8"),
    }


def capture_login_environment() -> Dict[str, str]:
    """What the account's login shell exports; the minimum where the shell does not answer."""
    base = minimal_environment()
    marker = new_nonce()
    script = f"echo {marker}; env -0; echo {marker}"
    argv, stdin = [base["SHELL"], "-l", "-c", script], b""
    if os.path.basename(base["SHELL"]) in ("csh", "tcsh"):  # a login shell there takes no command (csh(1), -l)
        argv, stdin = [base["SHELL"], "-l"], script.encode() + b"\n"
    answer = _run_login_shell(argv, base, stdin=stdin, until=marker.encode())
    if answer is None:
        return base
    found = {}
    for pair in answer.lstrip(b"\r\n").split(b"\0"):
        name, equals, value = os.fsdecode(pair).partition("=")
        ours = name == KEY_AGENT or not name.startswith(("SSH_", *NOT_OURS_PREFIXES))
        if equals and name and name not in NOT_OURS and ours:
            found[name] = value
    return {**base, **found}


def _run_login_shell(argv: List[str], env: Dict[str, str], *, stdin: bytes, until: bytes) -> Optional[bytes]:
    """What it prints between two markers; None when they do not come in time. Its session is ended if it still runs."""
    try:
        shell = subprocess.Popen(
            argv,
            env=env,
            cwd=env["HOME"] if os.path.isdir(env["HOME"]) else "/",
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    assert shell.stdout is not None
    if shell.stdin is not None:
        with contextlib.suppress(OSError), shell.stdin as pipe:
            pipe.write(stdin)
    seen = b""
    give_up = time.monotonic() + SHELL_LIMIT_S
    poll = select.poll()
    poll.register(shell.stdout, select.POLLIN)
    with shell.stdout as pipe:
        while seen.count(until) < 2 and len(seen) < ANSWER_LIMIT_BYTES:
            left_s = give_up - time.monotonic()
            data = os.read(pipe.fileno(), 65536) if left_s > 0 and poll.poll(int(left_s * 1000) + 1) else b""
            if not data:
                break
            seen += data
    try:
        shell.wait(timeout=max(0.1, give_up - time.monotonic()) if seen.count(until) == 2 else 0.1)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)  # its leader is not reaped, so the group is still its own
        shell.wait()
    parts = seen.split(until)
    return parts[1] if len(parts) == 3 else None


def load_login_environment(layout: Layout) -> Dict[str, str]:
    found = load_account_environment(layout)
    found.pop(KEY_AGENT, None)
    return found


def load_account_environment(layout: Layout) -> Dict[str, str]:
    """The same with the account's own ssh agent, where its profile names one."""
    path = os.path.join(layout.root, "login_env")
    try:
        fresh = 0 <= time.time() - os.stat(path).st_mtime < KEPT_S
        if fresh:
            with open(open_regular(path), "rb") as file:
                pairs = file.read().split(b"\0")
            return dict(os.fsdecode(pair).partition("=")[::2] for pair in pairs if pair)
    except OSError:
        pass
    found = capture_login_environment()
    with contextlib.suppress(OSError):  # then it is asked again the next time
        write_durably(path, b"\0".join(os.fsencode(f"{name}={value}") for name, value in found.items()))
    return found


def profiles_directory() -> str:
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(minimal_environment()["HOME"], ".config")
    return os.path.join(config, "shunter", "env")


def list_profiles() -> Dict[str, Dict[str, str]]:
    """By name; those that a turn could not use are left out."""
    found = {}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(profiles_directory())):
            if name.endswith(".env"):
                with contextlib.suppress(ShunterError):
                    found[name[:-4]] = load_profile(name[:-4])
    return found


_RIGHTS = ((0o044, "read"), (0o022, "write"), (0o011, "run"))  # of anybody but the owner


def load_profile(name: str) -> Dict[str, str]:
    """`$XDG_CONFIG_HOME/shunter/env/<name>.env`: NAME=value lines, mode 0600, put there by the operator."""
    if not is_host_name(name):
        raise ShunterError("ENV_PROFILE_UNKNOWN", f"{name!r} is not a profile name: lower case, digits, . _ -")
    path = os.path.join(profiles_directory(), name + ".env")
    try:
        with open(open_regular(path, follows_links=True), encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                rights = [word for bits, word in _RIGHTS if mode & bits]
                text = f"{path} has mode {mode:04o}, others may {' and '.join(rights)} it"
                raise ShunterError("ENV_PROFILE_PERMISSIONS", text, hint=f"chmod 600 {path}")
            lines = file.read().splitlines()
    except FileNotFoundError as exc:
        raise ShunterError("ENV_PROFILE_UNKNOWN", f"no profile {path}") from exc
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise ShunterError("ENV_PROFILE_UNKNOWN", f"{path}: {reason}") from exc
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = _without_export(text).partition("=")
        if not equals or not key.isascii() or not key.isidentifier():
            raise ShunterError("ENV_PROFILE_UNKNOWN", f"{path}, line {number}: expected NAME=value")
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[key] = value
    return found


def _without_export(text: str) -> str:
    return text[len("export ") :].lstrip() if text.startswith("export ") else text
