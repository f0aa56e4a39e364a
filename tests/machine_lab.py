"""A whole machine for tests: Debian 11 (Python 3.9, git 2.30) with systemd as its process 1, logind and its own sshd.

A copy-on-write mount of one root file system (`debian11/install`), booted by systemd-nspawn, without a network. ssh
comes in by a socket file, and systemd starts an sshd for each connection, so a login is a session of logind.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ssh_lab import Lab, run

INSTALL = Path(__file__).parent / "debian11" / "install"
INSTALL_LIMIT_S = 600
BOOT_LIMIT_S = 60
SOCKET = """[Socket]
ListenStream=/run/lab.sock
Accept=yes
MaxConnections=256
"""
SERVICE = """[Service]
ExecStart=-/usr/sbin/sshd -i
StandardInput=socket
StandardError=journal
RuntimeDirectory=sshd
RuntimeDirectoryPreserve=yes
"""
# What ssh starts as its proxy: a connection to that socket, both ways.
PROXY = """import os, socket, sys, threading
end = socket.socket(socket.AF_UNIX)
end.connect(sys.argv[1])
def up():
    for data in iter(lambda: os.read(0, 65536), b""):
        end.sendall(data)
    end.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
for data in iter(lambda: end.recv(65536), b""):
    os.write(1, data)
os._exit(0)
"""


def debian11_root() -> Path:
    """Skips where it cannot be had, unless SHUNTER_REQUIRE_DEBIAN11 says that it must."""
    try:
        ran = subprocess.run(
            [INSTALL], capture_output=True, text=True, timeout=INSTALL_LIMIT_S, stdin=subprocess.DEVNULL
        )
        reason = ran.stderr.strip()[-500:] if ran.returncode else ""
    except subprocess.TimeoutExpired:
        reason = f"{INSTALL} took more than {INSTALL_LIMIT_S} s"
    if reason:
        (pytest.fail if os.environ.get("SHUNTER_REQUIRE_DEBIAN11") else pytest.skip)(reason)
    return Path(ran.stdout.strip())


class Machine:
    """Booted with the object. `files` are written below its root before that."""

    def __init__(self, place: Path, base: Path, *, files: dict[str, str] | None = None) -> None:
        self.place, self.root = place, place / "root"
        for name in ("upper", "work", "root"):
            (place / name).mkdir(parents=True)
        layers = f"lowerdir={base},upperdir={place / 'upper'},workdir={place / 'work'}"
        run("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        units = "etc/systemd/system"
        written = {f"{units}/lab.socket": SOCKET, f"{units}/lab@.service": SERVICE, **(files or {})}
        for name, text in written.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        wants = self.root / units / "sockets.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / "lab.socket").symlink_to("../lab.socket")
        self.proxy = place / "proxy.py"
        self.proxy.write_text(PROXY)
        unified = "1" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "0"
        self.nspawn = subprocess.Popen(
            [
                *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--private-network"),
                *(f"--machine=lab-{os.getpid()}-{os.urandom(3).hex()}", f"--directory={self.root}", "--boot"),
            ],
            env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": unified},
            stdin=subprocess.DEVNULL,
            stdout=(place / "console").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.leader = 0
        try:
            self._wait_until_up()
        except BaseException:
            self.close()
            raise

    def _wait_until_up(self) -> None:
        give_up = time.monotonic() + BOOT_LIMIT_S
        children = Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children")
        while not (self.leader and self.socket.exists()):
            assert time.monotonic() < give_up and self.nspawn.poll() is None, (self.place / "console").read_text()
            found = children.read_text().split()
            self.leader = int(found[0]) if found else 0
            time.sleep(0.02)
        # With logind up and the boot over, a login is a session from its first moment.
        while self.inside("systemctl is-system-running", check=False) not in ("running", "degraded"):
            assert time.monotonic() < give_up, (self.place / "console").read_text()
            time.sleep(0.1)

    @property
    def socket(self) -> Path:
        return Path(f"/proc/{self.leader}/root/run/lab.sock")

    def inside(self, line: str, *, check: bool = True) -> str:
        """A command of root's there."""
        enter = ("nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--")
        argv = [*enter, "/bin/sh", "-c", line]
        return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=check, timeout=60).stdout.strip()

    def processes(self) -> list[int]:
        """All of them, by the pids that they have here."""
        space = os.readlink(f"/proc/{self.leader}/ns/pid")
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.readlink(f"/proc/{name}/ns/pid") == space:
                    found.append(int(name))
            except OSError:
                continue
        return found

    def close(self) -> None:
        if self.leader:
            os.kill(self.leader, signal.SIGKILL)  # and with process 1 every other one of its pid namespace
        elif self.nspawn.poll() is None:
            self.nspawn.kill()
        self.nspawn.wait(timeout=60)
        subprocess.run(["umount", str(self.root)], check=False, capture_output=True, timeout=60)
        if not os.path.ismount(self.root):
            shutil.rmtree(self.place, ignore_errors=True)


class MachineHost:
    """An account on a machine, as a host of the lab."""

    is_own_user = True

    def __init__(self, lab: Lab, machine: Machine, name: str, *, shell: str = "/bin/bash") -> None:
        self.lab, self.machine, self.name, self.user = lab, machine, name, name
        # Not the number of an account of this machine: whose host goes, its processes go.
        apart = "-K UID_MIN=300000 -K UID_MAX=399999"
        machine.inside(f"useradd {apart} --create-home --shell {shell} --password '*' {name}")
        self.home = machine.root / "home" / name
        keys = self.home / ".ssh" / "authorized_keys"
        keys.parent.mkdir(mode=0o700)
        keys.write_text((lab.root / "id.pub").read_text())
        machine.inside(f"chown -R {name} /home/{name}")
        kind, key = (machine.root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()[:2]
        with lab.known_hosts.open("a") as known:
            known.write(f"lab-{name} {kind} {key}\n")
        with lab.config.open("a") as config:
            config.write(
                f"Host {name}\n  HostName {name}.{lab.token}.invalid\n  HostKeyAlias lab-{name}\n"
                f"  User {name}\n  IdentityFile {lab.key}\n"
                f"  IdentitiesOnly yes\n  UserKnownHostsFile {lab.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
                f"  StrictHostKeyChecking yes\n  KexAlgorithms curve25519-sha256\n"
                f"  ProxyCommand {shlex.join([sys.executable, '-I', '-S', str(machine.proxy), str(machine.socket)])}\n"
            )
        lab.hosts[name] = self  # type: ignore[assignment]

    def processes(self, word: str) -> list[int]:
        """Of the account, with this word in their command line."""
        uid = int(self.machine.inside(f"id -u {self.user}"))
        found = []
        for pid in self.machine.processes():
            try:
                if Path(f"/proc/{pid}").stat().st_uid == uid and word in Path(f"/proc/{pid}/cmdline").read_text():
                    found.append(pid)
            except OSError:
                continue
        return found

    def close(self) -> None:
        """The machine goes as a whole."""
