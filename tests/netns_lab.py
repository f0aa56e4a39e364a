"""Hosts of their own on this machine: namespaces with an address, a pid 1, a boot id and sshd; power and link can fail.

A host is one `unshare`: network, host name, processes, mounts. Its user, home and data root stand on this machine's
disk, so they are there again after a power cut. The network goes with the last process, and all processes go when the
test's own process does, so nothing of it is left behind whatever happens. Root only.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest
from ssh_lab import SSHD, Lab, LabHost, run

TOOLS = ("ip", "nft", "tini", "unshare", "nsenter", "setpriv")
NETWORKS = 1 << 15  # of four addresses each, in 198.18.0.0/15, which is set aside for tests (RFC 2544)
DROP = """table inet lab {
  chain i { type filter hook input priority 0; policy accept; tcp dport 22 drop; }
  chain o { type filter hook output priority 0; policy accept; tcp sport 22 drop; }
}
"""


def why_not() -> str | None:
    """What keeps such hosts from being made here."""
    if os.geteuid() != 0:
        return "hosts with a network and processes of their own need root"
    missing = [tool for tool in TOOLS if find(tool) is None]
    if SSHD is None or shutil.which("ssh") is None:
        missing.append("OpenSSH")
    return f"missing here: {', '.join(missing)}" if missing else None


def require_hosts() -> None:
    """Skip the test, with the reason, where there can be none, unless SHUNTER_REQUIRE_HOSTS says that they must."""
    reason = why_not()
    if reason:
        (pytest.fail if os.environ.get("SHUNTER_REQUIRE_HOSTS") else pytest.skip)(reason)


def find(tool: str) -> str | None:
    return shutil.which(tool, path="/usr/sbin:/sbin:" + os.environ.get("PATH", "/usr/bin:/bin"))


class NetnsLab(Lab):
    def add(self, name: str, *, shell: str = "/bin/bash", options: str = "", disk_mb: int = 0) -> NetnsHost:
        host = NetnsHost(self, name, shell, options)
        host.disk_mb = disk_mb
        self.keep(host)
        return host


class NetnsHost(LabHost):
    """`disk_mb`: the data root's parent is a file system of that size, a disk of its own that reboots do not empty."""

    disk_mb = 0
    unshare: subprocess.Popen | None = None
    frozen: list[int] = []

    def start(self) -> None:
        self.number = -1
        self.boot_file = self.lab.root / f"boot-{self.name}"
        if self.disk_mb:
            self.disk.mkdir(parents=True)
            run("mount", "-t", "tmpfs", "-o", f"size={self.disk_mb}m,mode=755", "tmpfs", str(self.disk))
            run("chown", "-R", self.user, str(self.home / ".local"))
        self.boot()
        self.introduce(f"HostName {self.address}")

    @property
    def disk(self) -> Path:
        return self.home / ".local" / "share"

    @property
    def address(self) -> str:
        return self._address(2)

    def _address(self, end: int) -> str:
        at = self.number * 4 + end
        return f"198.{18 + (at >> 16)}.{at >> 8 & 255}.{at & 255}"

    # --- power ------------------------------------------------------------------------------------------------------

    def boot(self, *, sshd: bool = True) -> None:
        """Until sshd answers. Each boot has an id of its own and counts its processes from 1."""
        self.boot_file.write_text(f"{uuid.uuid4()}\n")
        self.frozen = []
        init = (
            f"mount --bind {self.boot_file} /proc/sys/kernel/random/boot_id && hostname {self.name} && "
            "mkdir -p /run/sshd && ip link set lo up && exec tini -- sleep infinity"
        )
        spaces = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.unshare = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *spaces, "sh", "-c", init],
            stdin=subprocess.DEVNULL,
            stdout=(self.lab.root / f"console-{self.name}").open("ab"),
            stderr=subprocess.STDOUT,
        )
        self.init = soon(self._find_init)
        self._plug_in()
        if sshd:
            self.start_sshd()

    def _find_init(self) -> int | None:
        """The pid here of the host's pid 1, once that is what it will stay."""
        assert self.unshare is not None and self.unshare.poll() is None, self.console()
        pid = self.unshare.pid
        try:
            found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return int(found[0]) if found and comm(int(found[0])) == "tini" else None
        except OSError:
            return None

    def console(self) -> str:
        return (self.lab.root / f"console-{self.name}").read_text()

    def _plug_in(self) -> None:
        """A cable from here; whose name is free tells which addresses are."""
        for number in (self.number, *random.sample(range(NETWORKS), 20)):
            cable = ["link", "add", "name", f"shl{number}", "type", "veth", "peer", "name", "eth0"]
            if number >= 0 and ip(*cable, "netns", str(self.init)):
                break
        else:
            raise AssertionError("no free network")
        self.number = number
        assert ip("addr", "add", f"{self._address(1)}/30", "dev", self.link)
        assert ip("link", "set", self.link, "up")
        self.inside("ip", "addr", "add", f"{self.address}/30", "dev", "eth0")
        self.inside("ip", "link", "set", "eth0", "up")

    @property
    def link(self) -> str:
        return f"shl{self.number}"

    def cut_power(self) -> None:
        """Every process of the host is gone at once. The link dies first: nobody is told."""
        self.link_down()
        self._signal(signal.SIGKILL, self.init)
        assert self.unshare is not None
        self.unshare.wait(timeout=30)
        ip("link", "del", self.link)  # the kernel does it as well, a moment later

    def reboot(self, *, sshd: bool = True) -> None:
        self.cut_power()
        self.boot(sshd=sshd)

    # --- link -------------------------------------------------------------------------------------------------------

    def link_down(self) -> None:
        ip("link", "set", self.link, "down")

    def link_up(self) -> None:
        ip("link", "set", self.link, "up")

    def drop_packets(self) -> None:
        self.inside("nft", "-f", "-", text=DROP)

    def undrop_packets(self) -> None:
        self.inside("nft", "flush", "ruleset")

    # --- sshd -------------------------------------------------------------------------------------------------------

    def start_sshd(self) -> None:
        self.inside(SSHD, "-f", str(self.server), "-E", str(self.log))

    def stop_sshd(self) -> None:
        """Nobody listens; connections that stand go on."""
        self._signal(signal.SIGKILL, *self.listeners())

    def kill_sessions(self) -> None:
        self._signal(signal.SIGKILL, *self.session_servers())

    def freeze_sessions(self) -> None:
        """The connections that stand become half-open."""
        self.frozen += self.session_servers()
        self._signal(signal.SIGSTOP, *self.frozen)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT, *self.frozen)
        self.frozen = []

    def listeners(self) -> list[int]:
        return [pid for pid in self._sshds() if b"listener" in cmdline(pid)]

    def session_servers(self) -> list[int]:
        return [pid for pid in self._sshds() if b"listener" not in cmdline(pid)]

    def _sshds(self) -> list[int]:
        return [pid for pid in self.everything() if comm(pid).startswith("sshd")]

    def _signal(self, number: int, *pids: int) -> None:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def heal(self) -> None:
        """Everything as after a boot, whatever was done to the host."""
        if self.unshare is None or self.unshare.poll() is not None:
            self.boot()
            return
        self.thaw()
        self.link_up()
        self.inside("nft", "flush", "ruleset")
        if not self.listeners():
            self.start_sshd()

    def fill_disk(self) -> None:
        """Not a byte is left on the host's own disk."""
        seen = os.statvfs(self.disk)
        used_kib = (seen.f_blocks - seen.f_bfree) * seen.f_frsize // 1024
        run("mount", "-o", f"remount,size={used_kib + 64}k", str(self.disk))
        (self.disk / "filler").touch()
        with suppress(OSError), (self.disk / "filler").open("wb", 0) as file:
            while file.write(bytes(4096)):
                pass

    def free_disk(self) -> None:
        (self.disk / "filler").unlink()
        run("mount", "-o", f"remount,size={self.disk_mb}m", str(self.disk))

    # --- inside -----------------------------------------------------------------------------------------------------

    def everything(self) -> list[int]:
        """Pids here of all that runs on the host."""
        mine = os.readlink(f"/proc/{self.init}/ns/pid")
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    if os.readlink(f"/proc/{name}/ns/pid") == mine:
                        found.append(int(name))
                except OSError:
                    continue
        return found

    def inside(self, *words: str | None, text: str = "") -> str:
        """A command there as root, without ssh."""
        enter = ["nsenter", "-t", str(self.init), "--net", "--uts", "--ipc", "--mount", "--pid"]
        done = subprocess.run(
            [*enter, *(word or "" for word in words)], input=text, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def close(self) -> None:
        if self.unshare is not None and self.unshare.poll() is None:
            self.cut_power()
        super().close()
        if self.disk_mb:
            subprocess.run(["umount", "-l", str(self.disk)], check=False, capture_output=True)


def ip(*words: str) -> bool:
    return subprocess.run([find("ip") or "ip", *words], capture_output=True, timeout=60).returncode == 0


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def soon(look, *, limit_s: float = 20.0):
    give_up = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < give_up, look
        time.sleep(0.005)
    return found
