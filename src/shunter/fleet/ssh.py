"""A host reached by the user's own OpenSSH, with the user's own configuration: jump hosts, tunnels, keys, agents.

One multiplexed connection a host, on a private socket, so a master of the user's is not disturbed; ssh itself replaces
a stale socket, and falls back to a connection of its own when the server's MaxSessions is reached. Nothing asks
anything (BatchMode), nothing gets a terminal, nothing is forwarded.

What runs at the other end is one line that every login shell reads alike (sh, bash, zsh, fish, csh): no quote inside
the quotes, no backslash, no `!`, no newline. Values travel as base64, so no shell ever sees them.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path

from ..wire.errors import ShunterError
from .helper import Helper, build_helper

SOCKET_LIMIT = 104 - 18  # sun_path of the smallest system, less what ssh appends while it makes the socket
CONNECT_LIMIT_S = 10
CALL_LIMIT_S = 60.0
OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=10",  # with two in a row unanswered a half-open link is noticed within 30 s
    "ServerAliveCountMax=2",
    "ControlMaster=auto",
    "ControlPersist=60",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "RequestTTY=no",
    "LogLevel=ERROR",
)
MISSING = "SHUNTER-HELPER-MISSING"
PYTHON = re.compile(r"[A-Za-z0-9/._+~-]+\Z")
# Runs the helper from its unpacked directory, or from the file that set-up put there when it is not unpacked yet.
# a = [data root or null, file name, digest, words...]; git appends the repository's path as the last argument.
RUN = (
    "import os,sys,json,base64;"
    "a=json.loads(base64.urlsafe_b64decode(sys.argv[1]));"
    'd=os.path.realpath(os.path.expanduser(a[0] or (os.environ.get("XDG_DATA_HOME") or "~/.local/share")+"/shunter"));'
    'l=os.path.join(d,"lib",a[2]);p=os.path.join(d,"bin",a[1]);'
    'os.path.exists(p) or (print("SHUNTER-HELPER-MISSING "+p,flush=True),sys.exit(69));'
    'sys.argv=[p,a[3],"--data-root",d]+a[4:]+sys.argv[2:];'
    'os.environ["SHUNTER_HELPER_DIGEST"]=a[2];'
    "x=os.path.isdir(l);sys.path.insert(0,l if x else p);"
    'x or __import__("runpy").run_path(p,run_name="__main__");'
    "from shunter.host.main import main;main()"
)
# Writes the helper that comes on stdin beside its place, checks it and renames it. a = [data root or null, name, sha256]
INSTALL = (
    "import os,sys,json,base64,hashlib;"
    "a=json.loads(base64.urlsafe_b64decode(sys.argv[1]));"
    'd=os.path.realpath(os.path.expanduser(a[0] or (os.environ.get("XDG_DATA_HOME") or "~/.local/share")+"/shunter"));'
    'b=os.path.join(d,"bin");os.makedirs(b,mode=0o700,exist_ok=True);'
    "s=sys.stdin.buffer.read();"
    'hashlib.sha256(s).hexdigest().startswith(a[2]) or sys.exit("the helper arrived damaged");'
    't=os.path.join(b,"."+a[1]+"."+str(os.getpid()));f=open(t,"wb");f.write(s);f.flush();os.fsync(f.fileno());f.close();'
    "os.rename(t,os.path.join(b,a[1]));print(d)"
)


class SshTransport:
    """`target` is a name for the user's ssh configuration, or user@machine."""

    def __init__(
        self,
        name: str,
        target: str,
        *,
        data_root: str | None = None,
        python: str | None = None,
        command: tuple[str, ...] = ("ssh",),
        extra: tuple[str, ...] = (),
    ) -> None:
        self.name, self.target, self.data_root, self.command, self.extra = name, target, data_root, command, extra
        self.python = python or "python3"
        if not PYTHON.match(self.python):
            raise ShunterError("CONFIG_INVALID", f"host {name}: python {self.python!r} is not a plain path")
        self._helper: Helper | None = None

    @property
    def helper(self) -> Helper:
        if self._helper is None:
            self._helper = build_helper()
        return self._helper

    def prepare(self) -> None:
        """Nothing: what is missing at the other end is told by its answer, and put there by set-up alone."""

    def ssh_argv(self) -> list[str]:
        options = [*OPTIONS, *self.extra, *socket_options()]
        return [*self.command, *(word for option in options for word in ("-o", option))]

    def session_argv(self, nonce: str) -> list[str]:
        return [*self.ssh_argv(), "-T", "--", self.target, self._run("serve", "--nonce", nonce)]

    def mirror_url(self, path: str) -> str:
        return f"{self.target}:{path}"

    def pack_command(self, *words: str) -> str:
        return self._run(*words)

    def ssh_command(self) -> str | None:
        return shlex.join([*self.ssh_argv(), "-T"])

    def failure(self, status: int | None, output: bytes) -> ShunterError:
        if MISSING.encode() in output:
            text = f"host {self.name}: the helper of this version is not installed there"
            return ShunterError("HOST_OUTDATED", text, hint=f"shunter host setup {self.name}")
        if status == 255 or status is None:
            return ssh_failure(self.name, self.target, output)
        return remote_failure(self.name, self.python, status, output)

    def _run(self, *words: str) -> str:
        return self.line(RUN, [self.data_root, self.helper.name, self.helper.digest, *words])

    def line(self, code: str, values: list[str | None]) -> str:
        """One remote command line that runs Python `code` with `values`."""
        packed = base64.urlsafe_b64encode(json.dumps(values).encode()).decode()
        assert not set("'\\!\n") & set(code), "some login shell would read it another way"
        return f"exec {self.python} -I -S -c '{code}' {packed}"

    def install(self) -> str:
        """Copy the helper; the data root as the host sees it. Old versions stay for the turns that run under them."""
        done = self.run(self.line(INSTALL, [self.data_root, self.helper.name, self.helper.digest]), self.helper.data)
        return done.decode("utf-8", "surrogateescape").strip().splitlines()[-1]

    def run(self, line: str, stdin: bytes = b"", *, limit_s: float = CALL_LIMIT_S) -> bytes:
        """Standard output of one remote command. Raises HOST_UNREACHABLE or HOST_INCAPABLE with what ssh said."""
        try:
            done = subprocess.run(
                [*self.ssh_argv(), "-T", "--", self.target, line], input=stdin, capture_output=True, timeout=limit_s
            )
        except subprocess.TimeoutExpired as exc:
            raise ShunterError("HOST_UNREACHABLE", f"host {self.name}: no answer within {limit_s:.0f} s") from exc
        except OSError as exc:
            raise ShunterError("HOST_UNREACHABLE", f"{self.command[0]}: {exc.strerror}") from exc
        if done.returncode != 0:
            raise self.failure(done.returncode, done.stdout + done.stderr)
        return done.stdout


def socket_options() -> list[str]:
    """A private socket; none when no short enough directory is ours alone, then every call connects by itself."""
    directory = socket_directory()
    if directory is None:
        return ["ControlPath=none"]
    return [f"ControlPath={directory}/%C"]


def socket_directory() -> Path | None:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [Path(runtime) / "shunter"] if runtime else []
    candidates.append(Path(tempfile.gettempdir()) / f"shunter-{os.getuid()}")
    for path in candidates:
        if len(os.fsencode(path)) + 1 + 40 > SOCKET_LIMIT:  # %C is 40 hexadecimal digits
            continue
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            found = path.lstat()
        except OSError:
            continue
        if found.st_uid == os.getuid() and found.st_mode & 0o077 == 0:
            return path
    return None


def ssh_failure(name: str, target: str, stderr: bytes) -> ShunterError:
    """What ssh said, told apart by what a person has to do."""
    text = stderr.decode("utf-8", "replace").strip()
    last = text.splitlines()[-1] if text else "the connection failed"
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text or "Host key verification failed" in text:
        changed = "HAS CHANGED" in text
        what = "its host key changed" if changed else "its host key is not known"
        hint = f"ssh-keygen -R {target}" if changed else f"ssh {target} true, and compare the key"
        return ShunterError("HOST_KEY", f"host {name}: {what}", hint=hint)
    if "Permission denied" in text:
        return ShunterError("HOST_AUTH", f"host {name}: {last}", hint=f"ssh-copy-id {target}")
    return ShunterError("HOST_UNREACHABLE", f"host {name}: {last}", hint=f"ssh {target} true")


def remote_failure(name: str, python: str, status: int, output: bytes) -> ShunterError:
    text = output.decode("utf-8", "replace").strip()
    last = text.splitlines()[-1] if text else f"exit status {status}"
    if status == 127 or "not found" in last:
        hint = "install Python 3.9 or newer there, or name its path with `python` in the host's entry"
        return ShunterError("HOST_INCAPABLE", f"host {name}: {python} is not there: {last}", hint=hint)
    return ShunterError("HOST_INCAPABLE", f"host {name}: {last}")
