"""Real sshd hosts on this machine for tests: own users and homes as root, the caller's own account otherwise.

No port and no daemon: each connection is an `sshd -i` of its own that ssh starts as its proxy, so nothing collides.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import subprocess
from pathlib import Path

from shunter.fleet.ssh import socket_options

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))


class Lab:
    """Keys, a client configuration and one server configuration a host, below one directory."""

    def __init__(self, root: Path) -> None:
        os.environ.pop("XDG_RUNTIME_DIR", None)  # as in a world: then we look for sockets where its commands make them
        self.root = root
        root.mkdir(parents=True)
        root.chmod(0o755)
        self.config = root / "config"
        self.known_hosts = root / "known_hosts"
        self.key = root / "id"
        keygen(self.key)
        self.config.write_text("")
        self.token = os.urandom(4).hex()  # no connection of another test's host of the same name is ever shared
        self.hosts: dict[str, LabHost] = {}

    def add(self, name: str, *, shell: str = "/bin/bash", options: str = "") -> LabHost:
        return self.keep(LabHost(self, name, shell, options))

    def keep(self, host: LabHost) -> LabHost:
        self.hosts[host.name] = host
        host.start()
        return host

    @property
    def ssh_command(self) -> list[str]:
        return ["ssh", "-F", str(self.config)]

    def close(self) -> None:
        while self.hosts:
            name, host = self.hosts.popitem()
            for option in socket_options():
                leave = [*self.ssh_command, "-o", option, "-O", "exit", name]
                subprocess.run(leave, check=False, capture_output=True, timeout=20)
            host.close()


class LabHost:
    """`user` is made for the test as root; its home is below the lab."""

    def __init__(self, lab: Lab, name: str, shell: str, options: str) -> None:
        self.lab, self.name = lab, name
        self.is_own_user = os.geteuid() == 0
        own = f"shl-{os.getpid()}-{lab.token[:4]}-{name}"[:31]
        self.user = own if self.is_own_user else pwd.getpwuid(os.getuid()).pw_name
        self.home = lab.root / f"home-{name}"
        self.key = lab.root / f"hostkey-{name}"
        keygen(self.key)
        self.home.mkdir(mode=0o755)
        keys = self.home / ".ssh" / "authorized_keys"
        keys.parent.mkdir(mode=0o700)
        keys.write_text((lab.root / "id.pub").read_text())
        keys.chmod(0o600)
        if self.is_own_user:
            run("useradd", "--no-create-home", "--home-dir", str(self.home), "--shell", shell, "-p", "*", self.user)
            run("chown", "-R", self.user, str(self.home))
        self.server = lab.root / f"sshd-{name}.conf"
        self.server.write_text(
            f"HostKey {self.key}\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"AuthorizedKeysFile {keys}\nAllowUsers {self.user}\nStrictModes no\nUseDNS no\nPidFile none\n"
            f"Subsystem sftp internal-sftp\n{options}\n"
        )
        self.log = lab.root / f"sshd-{name}.log"
        self.proxy = lab.root / f"proxy-{name}"
        self.trust()

    def start(self) -> None:
        self.come_back()
        self.introduce(f"HostName {self.name}.{self.lab.token}.invalid\n  ProxyCommand {self.proxy}")

    def introduce(self, way: str) -> None:
        """Write the host into the client's configuration."""
        with self.lab.config.open("a") as config:
            config.write(
                f"Host {self.name}\n  {way}\n  HostKeyAlias lab-{self.name}\n"
                f"  User {self.user}\n  IdentityFile {self.lab.key}\n"
                f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.lab.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
                f"  StrictHostKeyChecking yes\n  KexAlgorithms curve25519-sha256\n"
            )

    def come_back(self) -> None:
        self._proxy(f"{SSHD} -i -f {self.server} -E {self.log}")

    def vanish(self, instead: str = "false") -> None:
        """The next connection meets this command in place of sshd; those that stand go down with their processes."""
        self._proxy(instead)
        for pid in self.processes() if self.is_own_user else ():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it may end by itself meanwhile
                if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                    os.kill(pid, 9)

    def _proxy(self, command: str) -> None:
        aside = self.proxy.with_suffix(".new")
        aside.write_text(f"#!/bin/sh\nexec {command}\n")
        aside.chmod(0o755)
        aside.rename(self.proxy)

    def kill_master(self) -> bool:
        """End the client's shared connection; False when there was none."""
        for option in socket_options():
            check = [*self.lab.ssh_command, "-o", option, "-O", "check", self.name]
            told = subprocess.run(check, capture_output=True, text=True, timeout=20)
            found = re.search(r"pid=(\d+)", told.stdout + told.stderr)
            if found:
                os.kill(int(found[1]), 9)
                return True
        return False

    def connections(self) -> int:
        """How many there were so far."""
        return self.log.read_text().count("Accepted publickey") if self.log.exists() else 0

    def refuse(self) -> None:
        """The key that got in so far does not any more."""
        (self.home / ".ssh" / "authorized_keys").write_text("")

    def trust(self) -> None:
        """Write the present host key into the client's known hosts, in place of any former one."""
        lines = self.lab.known_hosts.read_text().splitlines() if self.lab.known_hosts.exists() else []
        kept = [line for line in lines if not line.startswith(f"lab-{self.name} ")]
        kind, key = self.key.with_suffix(".pub").read_text().split()[:2]
        self.lab.known_hosts.write_text("\n".join([*kept, f"lab-{self.name} {kind} {key}"]) + "\n")

    def new_key(self) -> None:
        """As after a new installation: the client's known key does not fit any more."""
        for path in (self.key, self.key.with_suffix(".pub")):
            path.unlink()
        keygen(self.key)

    def run(self, line: str) -> str:
        """A command there, over a connection of its own."""
        argv = [*self.lab.ssh_command, "-o", "ControlPath=none", self.name, line]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout

    def processes(self) -> list[int]:
        """Of the host's user, when it has one."""
        uid = pwd.getpwnam(self.user).pw_uid
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    if Path("/proc", name).stat().st_uid == uid:
                        found.append(int(name))
                except OSError:
                    continue
        return found

    def close(self) -> None:
        if not self.is_own_user:
            return
        for pid in self.processes():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue
        subprocess.run(["userdel", "-f", self.user], check=False, capture_output=True)


def keygen(path: Path) -> None:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=60)
