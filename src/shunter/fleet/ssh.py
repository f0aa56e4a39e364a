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
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..host.gitrun import git_disk_code
from ..host.layout import ASIDE, OURS
from ..wire import rpc
from ..wire.errors import ShunterError
from ..wire.messages import Purged
from .helper import Helper, build_helper
from .sshfailure import goes_through_others, is_way_cut, ssh_failure

SOCKET_LIMIT = 104 - 18  # sun_path of the smallest system, less what ssh appends while it makes the socket
CALL_LIMIT_S = 60.0
PURGE_LIMIT_S = 600.0
WAY_LIMIT_S = 20.0
CONFIG_LIMIT_S = 10.0  # reading it connects to nobody, but it may ask for names and run programs
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
ACCEPT_NEW_KEY = ("StrictHostKeyChecking=accept-new",)
OWN_CONNECTION = ("ControlMaster=no", "ControlPath=none")
MISSING = "SHUNTER-HELPER-MISSING"
NO_ROOT = "SHUNTER-DATA-ROOT-MISSING"
OLD_PYTHON = "SHUNTER-PYTHON-OLD"
PYTHON = re.compile(r"[A-Za-z0-9/._+~-]+\Z")
# What each of them begins with: a = its values, the first of them the data root or null; d = the data root.
BEGIN = (
    "import os,sys,json,base64;"
    'sys.version_info>=(3,9) or (print("SHUNTER-PYTHON-OLD "+sys.version.split()[0],flush=True),sys.exit(69));'
    "a=json.loads(base64.urlsafe_b64decode(sys.argv[1]));"
    'd=os.path.realpath(os.path.expanduser(a[0] or (os.environ.get("XDG_DATA_HOME") or "~/.local/share")+"/shunter"));'
)
# Runs the helper from its unpacked directory, or from the file that set-up put there when it is not unpacked yet.
# a = [data root, file name, digest, words...]; git appends the repository's path as the last argument.
RUN = (
    BEGIN + 'l=os.path.join(d,"lib",a[2]);p=os.path.join(d,"bin",a[1]);'
    f'os.path.exists(p) or (print(("{MISSING} " if os.path.exists(os.path.join(d,"host_id")) else "{NO_ROOT} ")+p,'
    "flush=True),sys.exit(69));"
    'sys.argv=[p,a[3],"--data-root",d]+a[4:]+sys.argv[2:];'
    'os.environ["SHUNTER_HELPER_DIGEST"]=a[2];'
    "x=os.path.isdir(l);sys.path.insert(0,l if x else p);"
    'x or __import__("runpy").run_path(p,run_name="__main__");'
    "from shunter.host.main import main;main()"
)
# Where the data root is, the id that it has, whether anything of ours is in it and what purges left of it, with nothing
# made there. a = [data root]
LOOK = (
    BEGIN + 'p=os.path.join(d,"host_id");i=open(p).read(99).strip() if os.path.isfile(p) else None;import glob;'
    f'n=os.listdir(d) if os.path.isdir(d) else [];k=[x for x in n if x.startswith("{ASIDE}")];'
    f'r=[os.path.join(d,x) for x in k]+glob.glob(glob.escape(d)+"{ASIDE}*");'
    f'u="ledger.db" in n or bool(not k and set(n)&set({json.dumps(OURS)}));'
    "print();print(json.dumps([d,i,u,r]))"
)
FOREIGN = "SHUNTER-DATA-ROOT-FOREIGN"
# Writes the helper that comes on stdin beside its place, checks it and renames it. a = [data root, name, digest]
# A directory that holds anything of somebody's is not made a data root: nobody could tell later what may go.
INSTALL = (
    BEGIN + f"o={json.dumps(OURS)};l=lambda p:os.listdir(p) if os.path.isdir(p) else [];"
    'x=[n for n in l(d) if n not in o and not n.startswith("' + ASIDE + '")]'
    '+[n for n in l(os.path.join(d,"bin")) if "shunter-host-" not in n];'
    'x and not os.path.exists(os.path.join(d,"ledger.db")) and '
    f'(print("{FOREIGN} "+d,flush=True),sys.exit(69));'
    'import hashlib;b=os.path.join(d,"bin");os.makedirs(b,mode=0o700,exist_ok=True);'
    "s=sys.stdin.buffer.read();"
    'hashlib.sha256(s).hexdigest().startswith(a[2]) or sys.exit("the helper arrived damaged");'
    't=os.path.join(b,"."+a[1]+"."+str(os.getpid()));f=open(t,"wb");f.write(s);f.flush();os.fsync(f.fileno());f.close();'
    "os.rename(t,os.path.join(b,a[1]));print();print(d)"
)
# Runs the helper that comes on stdin from memory, so that nothing of the data root is needed. a = [data root]
PURGE = (
    BEGIN + 'import tempfile;m=getattr(os,"memfd_create",None);'
    'f=os.fdopen(m("shunter"),"w+b") if m else tempfile.NamedTemporaryFile();'
    "f.write(sys.stdin.buffer.read());f.flush();"
    'sys.path.insert(0,"/proc/self/fd/"+str(f.fileno()) if m else f.name);'
    'sys.argv=["shunter-host","purge","--data-root",d];'
    "from shunter.host.main import main;main()"
)


@dataclass(frozen=True, slots=True)
class DataRoot:
    path: str
    host_id: str | None  # None: no helper was ever there
    is_used: bool = True  # something of shunter's is in it; what a purge moved aside does not count
    remains: tuple[str, ...] = ()  # what purges moved aside and did not get to


def root_remedy(name: str, *, open_turns: int | None) -> str:
    """Of a data root that is gone. `open_turns`: of this home there; None when nobody counted them."""
    back = "put it back (is its disk mounted?), or begin anew"
    if open_turns:
        return f"{back} and lose them: shunter host setup {name} --new-data-root"
    lost = "" if open_turns == 0 else " (while turns are open there with --new-data-root, and they are lost)"
    return f"{back}: shunter host setup {name}{lost}; where it was to go, shunter host remove {name} --purge"


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
        self._noisy = False

    @property
    def helper(self) -> Helper:
        if self._helper is None:
            self._helper = build_helper()
        return self._helper

    def prepare(self) -> None:
        """Nothing: what is missing at the other end is told by its answer, and put there by set-up alone."""

    def ssh_argv(self) -> list[str]:
        options = [*self.extra, *OPTIONS, *socket_options()]  # of two the first one counts
        return [*self.command, *(word for option in options for word in ("-o", option))]

    def session_argv(self, nonce: str) -> list[str]:
        return [*self.ssh_argv(), "-T", "--", self.target, self._run("serve", "--nonce", nonce)]

    def mirror_url(self, path: str) -> str:
        return f"{self.target}:{path}"

    def pack_command(self, *words: str) -> str:
        program, *options = words
        return self._run(program, *(("--marker", "yes") if self._noisy else ()), *options)

    def ssh_command(self) -> str | None:
        quiet = [sys.executable, "-I", "-S", str(Path(__file__).with_name("quiet.py"))] if self._noisy else []
        return shlex.join([*quiet, *self.ssh_argv(), "-T"])

    def heard_noise(self) -> None:
        self._noisy = True

    def failure(self, status: int | None, output: bytes) -> ShunterError:
        if MISSING.encode() in output:
            text = f"host {self.name}: the helper of this version is not installed there"
            return ShunterError("HOST_OUTDATED", text, hint=f"shunter host setup {self.name}")
        if NO_ROOT.encode() in output:
            text = f"host {self.name}: its data root is not there, or it is empty"
            return ShunterError("DATA_ROOT_MISSING", text, hint=root_remedy(self.name, open_turns=None))
        if FOREIGN.encode() in output:
            text = f"host {self.name}: {self.data_root or 'the data root'} holds files that are not shunter's"
            return ShunterError("CONFIG_INVALID", text, hint="give it a directory of its own: data_root, --data-root")
        if status == 255 or status is None:
            has_way = is_way_cut(output) and goes_through_others(self._configuration(self.target))
            said = output + self._words_of_the_way() if has_way else output
            return ssh_failure(self.name, (*self.command, self.target), said, self._configuration)
        return remote_failure(self.name, self.python, status, output)

    def _words_of_the_way(self) -> bytes:
        """Why the way to the host is cut: what ssh connects through is silenced for a connection that is to stay."""
        argv = [*self.alone().ssh_argv(), "-T", "--", self.target, "exec true"]
        env = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}  # and no terminal: a jump host's ssh knows no BatchMode
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=WAY_LIMIT_S,
                env=env,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired):
            return b""
        return b"\n" + done.stderr if done.returncode else b""

    def _configuration(self, target: str) -> str:
        """What ssh's configuration says about a target, line by line; empty when that cannot be had."""
        try:
            done = subprocess.run(
                [*self.command, "-G", "--", target],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CONFIG_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout.decode("utf-8", "replace")

    def alone(self) -> SshTransport:
        """The same host over connections that nobody shares, so that they end with what uses them."""
        extra = (*self.extra, *OWN_CONNECTION)
        return SshTransport(
            self.name, self.target, data_root=self.data_root, python=self.python, command=self.command, extra=extra
        )

    def reach(self) -> None:
        """Nothing but a connection and a shell. Raises what keeps us out, with the fingerprint of a key."""
        try:
            self.run("exec true", limit_s=30.0)
        except ShunterError as exc:
            if exc.code != "HOST_KEY":
                raise
            raise ShunterError("HOST_KEY", exc.text + self._fingerprint(), hint=exc.hint) from exc

    def look(self) -> DataRoot:
        """The data root there, before anything of ours runs or is made. Raises what `run` does."""
        told = self.run(self.line(LOOK, [self.data_root])).strip().rpartition(b"\n")[2]
        try:
            path, host_id, is_used, remains = json.loads(told)
        except (ValueError, TypeError) as exc:
            raise ShunterError("PROTOCOL", f"host {self.name} told no data root: {told[:200]!r}") from exc
        host_id = host_id if isinstance(host_id, str) and host_id else None
        return DataRoot(str(path), host_id, bool(is_used), tuple(map(str, remains)))

    def _fingerprint(self) -> str:
        """What the host shows, in the words of `ssh -v`; empty when that cannot be had."""
        argv = [*self.command, "-o", "LogLevel=DEBUG1", *self.ssh_argv()[len(self.command) :], "-T", "--", self.target]
        try:
            done = subprocess.run([*argv, "exec true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            return ""
        seen = re.search(r"Server host key: (\S+ SHA256:\S+)", done.stderr.decode("utf-8", "replace"))
        return f"; it shows {seen[1]}" if seen else ""

    def purge(self) -> Purged:
        """Remove all that shunter has there. Harmless when it is gone; raises when a part could not be removed."""
        told = self.run(self.line(PURGE, [self.data_root]), self.helper.data, limit_s=PURGE_LIMIT_S)
        message = rpc.parse(told.strip().rpartition(b"\n")[2])
        again = "then the same command again"
        if message.error is not None:
            code, text, _ = message.error
            hint = {
                "DISK_FULL": f"make room there, {again}",
                "DISK_UNUSABLE": f"`dmesg` and `mount` there say why; {again}",
            }
            raise ShunterError(code, f"host {self.name}: {text}", hint=hint.get(code, f"look into it there, {again}"))
        done: Purged = rpc.decoded(Purged, message.result, "purge")
        if done.left:
            more = f" ({len(done.left)} in all)" if len(done.left) > 1 else ""
            text = f"host {self.name}: part of it could not be removed: {done.left[0]}{more}"
            raise ShunterError(
                git_disk_code(done.left[0].encode(), "HOST_INCAPABLE"), text, hint=f"remove it there, {again}"
            )
        return done

    def _run(self, *words: str) -> str:
        return self.line(RUN, [self.data_root, self.helper.name, self.helper.digest, *words])

    def line(self, code: str, values: list[str | None]) -> str:
        """One remote command line that runs Python `code` with `values`."""
        packed = base64.urlsafe_b64encode(json.dumps(values).encode()).decode()
        assert not set("'\\!\n") & set(code), "some login shell would read it another way"
        return f"exec {self.python} -I -S -c '{code}' {packed}"

    def install(self) -> str:
        """Copy the helper; the data root as the host sees it. Old versions stay for the turns that run under them."""
        line = self.line(INSTALL, [self.data_root, self.helper.name, self.helper.digest])
        done = self.run(line, self.helper.data)
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
            raise self.failure(done.returncode, done.stdout + b"\n" + done.stderr)
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


def remote_failure(name: str, python: str, status: int, output: bytes) -> ShunterError:
    """The connection stands, and what was to run there did not."""
    text = output.decode("utf-8", "replace").strip()
    last = text.splitlines()[-1].strip() if text else f"exit status {status}"
    install = "install Python 3.9 or newer there, or name its path with `python` in the host's entry"
    old = re.search(OLD_PYTHON + r" (\S+)", text)
    if old:
        text = f"host {name}: {python} is Python {old[1]}, which is too old"
        return ShunterError("HOST_INCAPABLE", text, hint=install)
    if status in (126, 127) or "ot found" in last:
        return ShunterError("HOST_INCAPABLE", f"host {name}: {python} does not run there: {last}", hint=install)
    if re.match(r"(PermissionError|OSError|FileNotFoundError|NotADirectoryError)\b", last):
        elsewhere = "name a directory of the account's with `data_root` in the host's entry"
        hint = {"DISK_FULL": "make room there", "DISK_UNUSABLE": f"`dmesg` and `mount` there say why; or {elsewhere}"}
        code = git_disk_code(last.encode(), "HOST_INCAPABLE")
        text = f"host {name}: its data root cannot be written: {last}"
        return ShunterError(code, text, hint=hint.get(code, elsewhere))
    return ShunterError("HOST_INCAPABLE", f"host {name}: {last}")
