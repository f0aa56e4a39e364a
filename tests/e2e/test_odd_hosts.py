"""Hosts with something odd about them: each works, or is refused with the reason and the remedy."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from e2e_world import eventually
from gone import take_away
from machine_lab import Machine, MachineHost, debian11_root
from pool_world import text_of
from ssh_lab import SSHD, keygen

from shunter.fleet.ssh import socket_options

needs_own_users = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: accounts of their own")
pytestmark = [
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here"),
    pytest.mark.timeout(700),  # the first one with a machine may wait for the download
]


@pytest.fixture(scope="session")
def machine():
    place = Path(tempfile.mkdtemp(prefix="shunter-machine-"))
    place.chmod(0o755)
    made = Machine(place / "machine", debian11_root())
    yield made
    made.close()
    shutil.rmtree(place, ignore_errors=True)


@pytest.fixture
def an_account(pool, machine):
    """A fresh account on the machine, as a host of the pool; its processes end with the test."""
    made = []

    def make(**options) -> MachineHost:
        made.append(MachineHost(pool.lab, machine, f"odd{os.urandom(3).hex()}", **options))
        return made[-1]

    yield make
    for host in made:
        machine.inside(f"pkill -KILL -u {host.user}", check=False)


def works(pool, host) -> str:
    """One task there, home again; what it said."""
    pool.without_local()
    task = pool.world.submit("echo x > x.txt; id -un; ulimit -n", "--host", host.name)
    (found,) = pool.world.wait(task, status=0)
    assert (found["phrase"], found["host"]) == ("done", host.name)
    assert pool.world.git("show", f"{found['ref']}:x.txt") == "x"
    return pool.world.out("logs", task)


class TestDirectories:
    def test_nothing_may_be_executed_in_tmp(self, pool, machine, an_account):
        host = an_account()
        machine.inside("mount -t tmpfs -o noexec,nosuid,nodev tmpfs /tmp")
        try:
            assert f"{host.name} is ready" in text_of(pool.add(host))
            works(pool, host)
        finally:
            machine.inside("umount /tmp")

    def test_nothing_may_be_executed_in_the_data_root(self, pool, machine, an_account):
        host = an_account()
        place = f"/home/{host.user}/.local/share"
        machine.inside(f"mkdir -p {place}; mount -t tmpfs -o noexec,mode=777 tmpfs {place}")
        told = text_of(pool.add(host, status=69))
        assert "FAILED  execution" in told and f"mount {place} without noexec" in told and "data_root" in told
        assert pool.hosts("--refresh")[host.name]["state"] != "ready"
        told = text_of(pool.add(host, "--data-root", "~/elsewhere"))
        assert f"{host.name} is ready" in told
        works(pool, host)

    def test_a_home_on_a_read_only_file_system(self, pool, machine, an_account):
        host = an_account()
        home = f"/home/{host.user}"
        machine.inside(
            f"mount --bind {home} {home}; mount -o remount,bind,ro {home}; install -d -o {host.user} /srv/{host.user}"
        )
        told = text_of(pool.add(host, status=69))
        assert "cannot be written" in told and "data_root" in told
        told = text_of(pool.add(host, "--data-root", f"/srv/{host.user}/data"))
        assert f"{host.name} is ready" in told and "agents may want to" in told
        works(pool, host)

    def test_a_home_with_spaces_and_quotes_in_its_path(self, pool, machine, an_account):
        host = an_account()
        place = f'/home/it\'s "{host.user}" here'
        machine.inside(f"usermod -d {shlex.quote(place)} -m {host.user}")
        host.home = machine.root / place[1:]
        told = text_of(pool.add(host))
        assert f"{host.name} is ready" in told and place in told
        works(pool, host)
        assert "removed" in text_of(pool.world.run("host", "remove", host.name, "--purge", "--yes"))

    def test_a_very_long_data_root(self, pool, machine, an_account):
        host = an_account()
        told = text_of(pool.add(host, "--data-root", "~/" + "/".join(["deep" * 12] * 6)))
        assert f"{host.name} is ready" in told
        works(pool, host)

    @pytest.mark.parametrize("size", ["size=64k", "size=1m"])
    def test_a_disk_that_is_full_at_set_up(self, pool, machine, an_account, size):
        host = an_account()
        place = f"/home/{host.user}/.local/share"
        machine.inside(f"mkdir -p {place}; mount -t tmpfs -o mode=777,{size} tmpfs {place}")
        told = text_of(pool.add(host, status=69))
        assert "DISK_FULL" in told or "FAILED  disk" in told, told
        assert "make room" in told or "free at least" in told, told
        machine.inside(f"mount -o remount,size=2g {place}")
        assert f"{host.name} is ready" in text_of(pool.add(host))
        assert not list((host.home / ".local/share/shunter/bin").glob(".*"))

    @needs_own_users
    def test_a_data_root_on_fuse_is_refused(self, pool):
        if shutil.which("bindfs") is None:
            pytest.skip("no bindfs here")
        host = pool.a_host("fuse")
        for name in ("disk", "data"):
            (host.home / name).mkdir()
            shutil.chown(host.home / name, host.user)
        subprocess.run(["bindfs", "-o", "allow_other", host.home / "disk", host.home / "data"], check=True, timeout=20)
        try:
            told = text_of(pool.add(host, "--data-root", str(host.home / "data"), status=69))
            assert "FAILED  data root" in told and "is on fuse" in told and "local disk" in told
        finally:
            pool.lab.close()
            subprocess.run(["umount", "-l", host.home / "data"], check=True, timeout=20)


class TestLimits:
    @pytest.mark.parametrize("limits", ["nofile 32", "nproc 40"])
    def test_low_limits_of_the_account_are_enough(self, pool, machine, an_account, limits):
        host = an_account()
        limit(host, limits)
        assert f"{host.name} is ready" in text_of(pool.add(host))
        works(pool, host)

    @pytest.mark.parametrize("processes", [4, 8, 20])
    def test_an_account_that_may_hardly_start_anything_is_told(self, pool, an_account, processes):
        host = an_account()
        limit(host, f"nproc {processes}")
        told = text_of(pool.add(host, status=69))
        # With the fewest sshd itself may not get as far as saying so, and only the lost connection is known.
        assert "nproc" in told or (processes == 4 and "HOST_UNREACHABLE" in told), told
        assert not any(word in told for word in ("noexec", "locks", "Traceback")) and told.count("FAILED") <= 1


def limit(host: MachineHost, words: str) -> None:
    path = host.machine.root / "etc/security/limits.d" / f"{host.user}.conf"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{host.user} - {words}\n")


class TestShells:
    @needs_own_users
    def test_zsh_with_a_talking_start_up_file_and_a_path_of_the_login(self, pool):
        host = pool.a_host("mini", "zsh", options=f"Banner {pool.shared}/banner")
        (pool.shared / "banner").write_text("Authorised use only. No newline")
        tool = host.home / "tools" / "codex"
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\nexit 0\n")
        tool.chmod(0o755)
        (host.home / ".zprofile").write_text("export PATH=$HOME/tools:$PATH\n")
        (host.home / ".zshenv").write_text("print -n 'no newline {\"jsonrpc\"'\n")
        subprocess.run(["chown", "-R", host.user, host.home], check=True)
        told = text_of(pool.add(host))
        assert str(tool) in told and "its login shell prints" in told and "mini is ready" in told
        assert works(pool, host).startswith(host.user)


class TestSsh:
    def test_a_control_socket_left_by_a_killed_ssh(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        pool.hosts("--refresh")
        end_master(pool, "one")
        assert pool.hosts("--refresh")["one"]["state"] == "ready"
        works(pool, host)

    def test_the_users_own_master_is_left_alone(self, pool):
        host = pool.a_host("one")
        own = pool.lab.root / "own-%C"
        text = pool.lab.config.read_text()
        pool.lab.config.write_text(text + f"  ControlMaster auto\n  ControlPath {own}\n  ControlPersist 600\n")
        subprocess.run([*pool.lab.ssh_command, "one", "true"], check=True, timeout=30)
        before = host.connections()
        pool.add(host)
        works(pool, host)
        pool.world.run("host", "remove", "one")
        check = [*pool.lab.ssh_command, "-O", "check", "one"]
        assert b"Master running" in subprocess.run(check, capture_output=True, timeout=30).stderr
        subprocess.run([*pool.lab.ssh_command, "one", "true"], check=True, timeout=30)
        assert host.connections() > before  # shunter's were its own
        subprocess.run([*pool.lab.ssh_command, "-O", "exit", "one"], check=True, capture_output=True, timeout=30)

    def test_no_short_directory_for_sockets(self, pool):
        deep = pool.shared / ("d" * 100)
        deep.mkdir()
        pool.world.env["TMPDIR"] = str(deep)
        host = pool.a_host("one")
        assert "one is ready" in text_of(pool.add(host))
        works(pool, host)
        assert not list(deep.glob("shunter-*"))

    def test_include_and_match_of_the_configuration(self, pool):
        host = pool.a_host("one")
        outer = pool.lab.root / "it's outer"
        outer.write_text(f'Match originalhost alias exec "test -d /"\n  HostName one\nInclude "{pool.lab.config}"\n')
        # The entry is written for `one`, so the alias takes its settings by a pattern.
        pool.lab.config.write_text(pool.lab.config.read_text().replace("Host one\n", "Host one alias\n"))
        pool.world.run(
            "host", "add", "alias", "--ssh-command", f"ssh -F {shlex.quote(str(outer))}", *place_of(pool, host)
        )
        task = pool.world.submit("echo x > x.txt", "--host", "alias")
        (found,) = pool.world.wait(task, status=0)
        assert found["phrase"] == "done"

    def test_a_jump_host(self, pool):
        gate, behind = pool.a_host("gate"), pool.a_host("behind")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen(
            [SSHD, "-D", "-f", behind.server, "-p", str(port), "-o", "ListenAddress=127.0.0.1", "-E", behind.log]
        )
        try:
            text = pool.lab.config.read_text().replace(
                f"  ProxyCommand {behind.proxy}\n", f"  ProxyJump gate\n  Port {port}\n"
            )
            pool.lab.config.write_text(text.replace(f"behind.{pool.lab.token}.invalid", "127.0.0.1"))
            eventually(lambda: is_open(port))
            assert "behind is ready" in text_of(pool.add(behind))
            works(pool, behind)
            assert gate.connections() >= 1
        finally:
            pool.lab.close()
            server.kill()
            server.wait()

    def test_a_key_that_only_an_agent_has(self, pool):
        host = pool.a_host("one")
        key = pool.lab.root / "agents-own"
        keygen(key)
        (host.home / ".ssh" / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
        text = pool.lab.config.read_text()
        pool.lab.config.write_text(text.replace(f"IdentityFile {pool.lab.key}", f"IdentityFile {key}.pub"))
        sock = pool.lab.root / "agent"
        agent = subprocess.Popen(["ssh-agent", "-D", "-a", sock], stdout=subprocess.DEVNULL)
        try:
            eventually(sock.exists)
            subprocess.run(
                ["ssh-add", "-q", key], env={**os.environ, "SSH_AUTH_SOCK": str(sock)}, check=True, timeout=20
            )
            key.unlink()
            assert "HOST_AUTH" in text_of(pool.add(host, status=69))
            pool.world.env["SSH_AUTH_SOCK"] = str(sock)
            assert "one is ready" in text_of(pool.add(host))
            # Each later step connects anew: the dispatcher has the agent, too.
            end_master(pool, "one")
            works(pool, host)
        finally:
            agent.kill()
            agent.wait()


def place_of(pool, host) -> tuple[str, ...]:
    return () if host.is_own_user else ("--data-root", str(pool.root_of(host)))


def is_open(port: int) -> bool:
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


def end_master(pool, name: str) -> Path:
    """Kill the ssh that holds shunter's connection; its socket, which it had no time to remove."""
    (option,) = socket_options()
    check = [*pool.lab.ssh_command, "-o", option, "-O", "check", name]
    said = subprocess.run(check, capture_output=True, text=True, check=True, timeout=30).stderr
    pid = int(said.partition("pid=")[2].partition(")")[0])
    path = Path(Path(f"/proc/{pid}/cmdline").read_text().split()[1])
    os.kill(pid, signal.SIGKILL)
    assert path.is_socket()
    return path


class TestRemoval:
    def test_nothing_of_the_accounts_is_left_after_a_purge(self, pool, machine, an_account):
        host = an_account()
        machine.inside(f"install -d -o {host.user} /home/{host.user}/.local /home/{host.user}/.local/share")
        owned = f"find / -xdev -user {host.user} -not -path '/proc/*' | sort"
        before = machine.inside(owned)
        pool.add(host)
        works(pool, host)
        assert machine.inside(owned) != before
        assert "removed" in text_of(pool.world.run("host", "remove", host.name, "--purge", "--yes"))
        assert machine.inside(owned) == before

    @needs_own_users
    def test_a_purge_follows_no_link_and_ends_what_an_earlier_one_began(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        pool.without_local()
        outside = host.home / "outside"
        outside.mkdir(mode=0o755)
        (outside / "kept").touch()
        shutil.chown(outside, host.user)
        line = f"ln -s {outside} mine; ln -s /usr/lib theirs; mkdir -p shut/in; touch shut/in/x; chmod 0 shut"
        pool.world.wait(pool.world.submit(line))
        halves = [pool.root_of(host) / ".removing-7", pool.root_of(host).with_name("shunter.removing-7")]
        for half in halves:
            (half / "tasks").mkdir(parents=True)
            shutil.chown(half, host.user)
            shutil.chown(half / "tasks", host.user)
        told = text_of(pool.world.run("host", "remove", "one", "--purge", "--yes", status=64))
        assert "something of it in the workspace alone" in told  # the directory that could not be read
        assert "removed" in text_of(pool.world.run("host", "remove", "one", "--purge", "--yes", "--discard"))
        assert not pool.root_of(host).exists() and not any(half.exists() for half in halves)
        assert (outside / "kept").exists() and outside.stat().st_mode & 0o777 == 0o755

    @needs_own_users
    def test_a_purge_leaves_what_somebody_put_there(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        precious = pool.root_of(host) / "precious.txt"
        precious.write_text("mine")
        assert "other files there stay" in text_of(pool.world.run("host", "remove", "one", "--purge", "--yes"))
        assert os.listdir(precious.parent) == ["precious.txt"] and precious.read_text() == "mine"

    @needs_own_users
    @pytest.mark.parametrize("name", ["thesis.tex", "bin/mytool"])
    def test_a_directory_with_files_of_somebody_is_made_no_data_root(self, pool, name):
        host = pool.a_host("one")
        place = host.home / "things" / name
        place.parent.mkdir(parents=True)
        place.touch()
        mode = (host.home / "things").stat().st_mode
        told = text_of(pool.add(host, "--data-root", "~/things", status=69))
        assert "holds files that are not shunter's" in told and "--data-root" in told
        assert place.exists() and (host.home / "things").stat().st_mode == mode
        assert "is ready" in text_of(pool.add(host, "--data-root", "~/other"))

    @needs_own_users
    def test_a_purge_does_not_take_the_only_copy_of_a_result(self, pool):
        pool.add(pool.a_host("one"))
        pool.without_local()
        moved = pool.world.repo.rename(pool.world.root / "moved")
        pool.world.repo.mkdir()
        shutil.copytree(moved / ".git", pool.world.repo / ".git")
        task = pool.world.submit("sleep 2; echo x > x.txt")
        eventually(lambda: pool.world.json("status", task)["phrase"] == "running")
        shutil.rmtree(pool.world.repo / ".git")
        eventually(lambda: "not at home" in pool.world.json("status", task)["phrase"])
        told = text_of(pool.world.run("host", "remove", "one", "--purge", "--yes", status=64))
        assert "RESULT_UNDELIVERED" in told and task in told
        pool.world.run("host", "remove", "one", "--purge", "--yes", "--discard")
        pool.world.run("close", task, "--discard")
        assert pool.world.json("status", task)["state"] == "closed"


class TestSetUp:
    def test_broken_off_at_any_moment_and_begun_again(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        chance = random.Random(11)
        for _ in range(12):
            child = pool.world.start("host", "setup", "one")
            time.sleep(chance.uniform(0.05, 1.8))
            child.kill()
            child.wait()
            if chance.random() < 0.3:
                shutil.rmtree(pool.root_of(host) / "bin", ignore_errors=True)
            if chance.random() < 0.3:
                shutil.rmtree(pool.root_of(host) / "lib", ignore_errors=True)
        assert "one is ready" in text_of(pool.world.run("host", "setup", "one"))
        works(pool, host)
        mirrors = pool.root_of(host) / "mirrors"
        for path in mirrors.iterdir():
            os.utime(path, (1, 1))
        pool.world.run("host", "setup", "one")
        assert [path for path in mirrors.iterdir() if "proof-" in path.name] == []

    def test_one_that_was_never_proved_takes_no_turns(self, pool):
        host = pool.a_host("one")
        command = shlex.join(pool.lab.ssh_command)
        adding = pool.world.start("host", "add", "one", "--ssh-command", command, "--data-root", "~/data")
        while b"helper" not in adding.stdout.readline():
            pass
        adding.kill()
        adding.wait()
        shown = pool.hosts("--refresh")["one"]
        assert shown["state"] == "drained" and "never proved" in shown["reason"], shown
        told = text_of(pool.world.run("submit", "--host", "one", "--no-wait", "-a", "exec:true", "x", status=75))
        assert "never proved" in told
        assert "one is ready" in text_of(pool.add(host))
        assert pool.hosts("--refresh")["one"]["state"] == "ready"

    def test_twice_at_once(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        take_away(pool.root_of(host))
        children = [pool.world.start("host", "setup", "one") for _ in range(3)]
        for child in children:
            out, err = child.communicate(timeout=120)
            assert child.returncode == 0, (out, err)
        assert not list((pool.root_of(host) / "bin").glob(".*"))
        assert pool.hosts("--refresh")["one"]["state"] == "ready"
        works(pool, host)
