"""A host behind a jump host: whoever keeps us out is named, with ssh's line about it and what helps there."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess

import pytest
from e2e_world import eventually, quoted
from pool_world import Pool, text_of
from ssh_lab import SSHD, LabHost

pytestmark = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here")


class Behind:
    """Two sshd with ports of their own: `behind` is reached through `gate` alone, as ssh's configuration has it."""

    def __init__(self, pool: Pool) -> None:
        self.pool, self.lab = pool, pool.lab
        self.gate, self.host = pool.a_host("gate"), pool.a_host("behind")
        self.ports = {each.name: free_port() for each in (self.gate, self.host)}
        self.servers: dict[str, subprocess.Popen] = {}
        for each in (self.gate, self.host):
            jump = "  ProxyJump gate\n" if each is self.host else ""
            self.change(f"  ProxyCommand {each.proxy}\n", f"{jump}  Port {self.ports[each.name]}\n")
            self.change(f"{each.name}.{self.lab.token}.invalid", "127.0.0.1")
            self.serve(each)

    def serve(self, host: LabHost, *options: str) -> None:
        self.end(host)
        port = self.ports[host.name]
        words = [SSHD, "-D", "-f", host.server, "-p", str(port), "-o", "ListenAddress=127.0.0.1", "-E", host.log]
        self.servers[host.name] = subprocess.Popen([*words, *options])
        eventually(lambda: is_open(port))

    def end(self, host: LabHost) -> None:
        if host.name in self.servers:
            server = self.servers.pop(host.name)
            server.kill()
            server.wait()

    def change(self, former: str, new: str) -> None:
        text = self.lab.config.read_text()
        assert former in text
        self.lab.config.write_text(text.replace(former, new))

    def forget_key(self, host: LabHost) -> None:
        lines = self.lab.known_hosts.read_text().splitlines(keepends=True)
        self.lab.known_hosts.write_text("".join(line for line in lines if not line.startswith(f"lab-{host.name} ")))

    def refused(self, *words: str) -> str:
        return text_of(self.pool.add(self.host, *words, status=69))

    def by_hand(self, name: str) -> str:
        return f"{shlex.join(self.lab.ssh_command)} {name}"

    def close(self) -> None:
        self.pool.close()
        for host in (self.gate, self.host):
            self.end(host)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def is_open(port: int) -> bool:
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def behind(tmp_path):
    made = Behind(Pool(tmp_path))
    yield made
    made.close()


def assert_names_gate(behind: Behind, told: str, *words: str) -> None:
    for each in ("its jump host gate", *words):
        assert each in told, told
    assert "kex_exchange" not in told


def test_nobody_listens_on_the_jump_host(behind):
    behind.end(behind.gate)
    said = f"(ssh: connect to host 127.0.0.1 port {behind.ports['gate']}: Connection refused)"
    assert_names_gate(behind, behind.refused(), "HOST_UNREACHABLE", f"gate: nothing listens there {said}")


def test_nobody_listens_on_the_host(behind):
    behind.end(behind.host)
    told = behind.refused()
    assert "HOST_UNREACHABLE: host behind: nothing listens there (channel 0: open failed" in told, told


def test_the_jump_hosts_name_is_not_known(behind):
    behind.change("Host gate\n  HostName 127.0.0.1", "Host gate\n  HostName gate.invalid")
    assert_names_gate(behind, behind.refused(), "HOST_UNREACHABLE", "its name is not known here", "gate.invalid")


def test_the_jump_host_refuses_the_key(behind):
    behind.gate.refuse()
    said = f"{behind.gate.user}@127.0.0.1: Permission denied (publickey)"
    assert_names_gate(behind, behind.refused(), "HOST_AUTH", said, f"then {behind.by_hand('gate')} true")


def test_the_host_refuses_the_key(behind):
    behind.host.refuse()
    told = behind.refused()
    assert "HOST_AUTH: host behind did not let us in" in told and f"{behind.by_hand('behind')} true" in told, told


def test_the_jump_hosts_key_changed(behind):
    behind.gate.new_key()
    behind.serve(behind.gate)
    told = behind.refused()
    assert_names_gate(behind, told, "HOST_KEY", "the host key of its jump host gate changed", '-R "lab-gate"')


@pytest.mark.parametrize("checking", ["yes", "ask"])
def test_the_jump_hosts_key_is_not_known(behind, checking):
    behind.change("StrictHostKeyChecking yes", f"StrictHostKeyChecking {checking}")
    behind.forget_key(behind.gate)
    told = behind.refused("--accept-new-key")
    assert_names_gate(behind, told, "HOST_KEY", f"`{behind.by_hand('gate')} true`", "is for behind itself")
    remedy = [*behind.lab.ssh_command, "-o", "StrictHostKeyChecking=accept-new", "gate", "true"]  # as a yes by hand
    subprocess.run(remedy, check=True, capture_output=True, timeout=60)
    assert "behind is ready" in text_of(behind.pool.add(behind.host))


def test_only_the_hosts_key_is_not_known(behind):
    behind.forget_key(behind.host)
    told = behind.refused()
    assert "HOST_KEY: host behind: its host key is not known here" in told, told
    assert "behind is ready" in text_of(behind.pool.add(behind.host, "--accept-new-key"))


def test_the_jump_host_passes_nothing_on(behind):
    behind.serve(behind.gate, "-o", "AllowTcpForwarding=no")
    assert_names_gate(behind, behind.refused(), "HOST_UNREACHABLE", "passes no connection on", "AllowTcpForwarding")


def test_a_configuration_that_ssh_cannot_read(behind):
    behind.change("Host gate\n", "NoSuchOption yes\nHost gate\n")
    told = behind.refused()
    assert "SSH_CONFIG" in told and f"{behind.lab.config}: line 1: Bad configuration option: nosuchoption" in told, told
    assert "terminating" not in told


def test_in_the_middle_of_a_turn(behind):
    """The turn is doubtful with the cause, and comes home once that is mended."""
    pool = behind.pool
    pool.without_local()
    assert "behind is ready" in text_of(pool.add(behind.host))
    go = pool.shared / "go"
    pool.shared.chmod(0o777)
    task = pool.world.submit(f"while [ ! -e {quoted(str(go))} ]; do sleep 0.1; done; echo x > x", "--host", "behind")
    eventually(lambda: pool.world.json("status", task)["phrase"] == "running")
    config = behind.lab.config.read_text()
    keys = (behind.gate.home / ".ssh" / "authorized_keys").read_text()
    behind.gate.refuse()
    assert behind.host.kill_master()
    eventually(lambda: "HOST_AUTH: host behind: its jump host gate" in pool.world.out("status", task), every_s=0.2)
    assert pool.world.json("status", task)["phrase"] == "uncertain"
    (behind.gate.home / ".ssh" / "authorized_keys").write_text(keys)
    behind.lab.config.write_text(f"NoSuchOption yes\n{config}")
    pool.world.run("reconcile", status=None)
    eventually(lambda: "SSH_CONFIG" in pool.world.out("status", task), every_s=0.2)
    assert pool.world.json("status", task)["phrase"] == "uncertain"
    behind.lab.config.write_text(config)
    go.touch()
    os.chmod(go, 0o666)
    pool.world.run("reconcile", status=None)
    (found,) = pool.world.wait(task, status=0)
    assert found["phrase"] == "done"
