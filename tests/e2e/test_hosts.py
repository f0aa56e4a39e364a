"""A pool of machines reached by ssh: real sshd, real accounts with different login shells (as root), one home."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from e2e_world import eventually, quoted
from pool_world import text_of
from ssh_lab import SSHD

from shunter.fleet.client import HostClient
from shunter.fleet.ssh import SshTransport
from shunter.wire.messages import AttemptRef

needs_own_users = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: accounts of their own")
pytestmark = [
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here"),
    pytest.mark.timeout(180),
]


class TestAdding:
    @pytest.mark.parametrize(
        "shell", ["bash", pytest.param("fish", marks=needs_own_users), pytest.param("csh", marks=needs_own_users)]
    )
    def test_one_command_takes_a_machine_into_the_pool(self, pool, shell):
        host = pool.a_host("mini", shell)
        told = text_of(pool.add(host, "--slots", "3", "--tag", "gpu"))
        assert "local` was written too" in told
        assert "mini is ready" in told and "FAILED" not in told
        assert [each["name"] for each in pool.entries()] == ["local", "mini"]
        assert pool.entries()[1]["slots"] == 3 and pool.entries()[1]["tags"] == ["gpu"]
        # Nothing of the proof is left.
        assert list((pool.root_of(host) / "mirrors").iterdir()) == []
        with sqlite3.connect(pool.root_of(host) / "ledger.db") as ledger:
            assert ledger.execute("SELECT count(*) FROM lease").fetchone() == (0,)
        assert [name for name in os.listdir(pool.root_of(host) / "run") if name.startswith("proof")] == []

    def test_comments_order_and_mode_of_the_file_stay(self, pool):
        host = pool.a_host("mini")
        before = "# mine\n\n[limits] # of mine\nterm_grace_s = 1\n\n[defaults]\npriority = 1 # one\n"
        pool.world.config.write_text(before)
        pool.world.config.chmod(0o640)
        pool.add(host)
        after = pool.world.config.read_text()
        assert after.startswith(before)
        assert pool.world.config.stat().st_mode & 0o777 == 0o640
        pool.world.run("host", "remove", "mini")
        assert pool.world.config.read_text().startswith(before)
        assert [each["name"] for each in pool.entries()] == ["local"]

    def test_a_second_run_goes_on_where_the_first_one_stopped(self, pool):
        host = pool.a_host("mini")
        told = text_of(pool.add(host, "--python", "nope", status=69))
        assert "nope does not run there" in told and "install Python 3.9" in told
        assert pool.hosts()["mini"]["state"] == "unknown"
        told = text_of(pool.add(host, "--python", "python3"))
        assert "python changed" in told and "mini is ready" in told
        assert pool.hosts("--refresh")["mini"]["state"] == "ready"
        told = text_of(pool.add(host))
        assert "was in" in told and "mini is ready" in told
        assert [each["name"] for each in pool.entries()] == ["local", "mini"]

    def test_two_at_once_leave_a_configuration_that_can_be_read(self, pool):
        host = pool.a_host("mini")
        command = shlex.join(pool.lab.ssh_command)
        words = ("host", "add", host.name, "--ssh-command", command, "--data-root", "~/data")
        both = [pool.world.start(*words) for _ in range(2)]
        told = [b"".join(child.communicate(timeout=120)).decode() for child in both]
        assert [each["name"] for each in pool.entries()] == ["local", "mini"], told
        assert "mini is ready" in text_of(pool.world.run(*words))

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (["--data-root", "relative/x"], "CONFIG_INVALID"),
            (["--memory-mb", "100", "--reserve-mb", "100"], "CONFIG_INVALID"),
            (["--ssh-command", "ssh -F '/tmp/x"], "USAGE"),
        ],
    )
    def test_what_could_not_be_read_again_is_not_written(self, pool, words, code):
        host = pool.a_host("mini")
        before = pool.world.config.read_text()
        command = () if "--ssh-command" in words else ("--ssh-command", shlex.join(pool.lab.ssh_command))
        told = text_of(pool.world.run("host", "add", host.name, *command, *words, status=64))
        assert code in told and pool.world.config.read_text() == before

    def test_a_name_that_is_taken_and_a_target_that_is_none(self, pool):
        host = pool.a_host("mini")
        pool.add(host)
        other = pool.a_host("other")
        told = text_of(pool.add(other, "--name", "mini", status=64))
        assert "the name mini is taken" in told and "--name" in told
        told = text_of(pool.world.run("host", "add", "--", "-oProxyCommand=touch /tmp/x", status=64))
        assert "user@machine" in told

    def test_an_unknown_key_is_shown_and_trusted_only_on_the_operators_word(self, pool):
        host = pool.a_host("mini")
        pool.lab.known_hosts.write_text("")
        text = pool.lab.config.read_text().replace("StrictHostKeyChecking yes", "StrictHostKeyChecking ask")
        pool.lab.config.write_text(text)
        told = text_of(pool.add(host, status=69))
        assert "HOST_KEY" in told and "SHA256:" in told and "--accept-new-key" in told
        assert pool.entries() == []
        assert "mini is ready" in text_of(pool.add(host, "--accept-new-key"))
        assert "lab-mini" in pool.lab.known_hosts.read_text()

    def test_a_swapped_key_is_refused_even_then(self, pool):
        host = pool.a_host("mini")
        host.new_key()
        told = text_of(pool.add(host, "--accept-new-key", status=69))
        assert "HOST_KEY" in told and "changed" in told and "ssh-keygen" in told
        host.trust()
        assert "mini is ready" in text_of(pool.add(host))

    def test_a_refused_login_an_unknown_name_and_nobody_listening_are_told_apart(self, pool):
        host = pool.a_host("mini")
        host.refuse()
        told = text_of(pool.add(host, status=69))
        assert "HOST_AUTH" in told and "authorized_keys" in told
        told = text_of(pool.world.run("host", "add", "no-such-machine.invalid", status=69))
        assert "HOST_UNREACHABLE" in told and "not known here" in told
        told = text_of(pool.world.run("host", "add", "127.0.0.1", "--ssh-command", "ssh -F none -p 9", status=69))
        assert "HOST_UNREACHABLE" in told and "nothing listens there" in told
        assert pool.entries() == []

    @needs_own_users
    def test_a_read_only_home_needs_a_data_root_elsewhere(self, pool):
        host = pool.a_host("mini")
        shutil.chown(host.home, "root")
        told = text_of(pool.add(host, status=69))
        assert "data_root" in told and "cannot be written" in told
        elsewhere = pool.lab.root / "elsewhere"
        elsewhere.mkdir()
        shutil.chown(elsewhere, host.user)
        told = text_of(pool.add(host, "--data-root", str(elsewhere / "data")))
        assert "mini is ready" in told and (elsewhere / "data" / "ledger.db").exists()
        pool.without_local()
        task = pool.world.submit("id -un > who.txt")
        (found,) = pool.world.wait(task, status=0)
        assert found["phrase"] == "done"
        assert pool.world.git("show", f"{found['ref']}:who.txt") == host.user

    @needs_own_users
    @pytest.mark.parametrize(("shell", "file"), [("bash", ".bashrc"), ("fish", ".config/fish/config.fish")])
    def test_a_login_shell_that_talks_harms_neither_helper_nor_git(self, pool, shell, file):
        host = pool.a_host("loud", shell)
        (host.home / file).parent.mkdir(parents=True, exist_ok=True)
        (host.home / file).write_text("echo '{welcome} to the machine'\nprintf 'no newline {\"jsonrpc\"'\n")
        os.system(f"chown -R {host.user} {host.home}")
        told = text_of(pool.add(host))
        assert "its login shell prints" in told and "loud is ready" in told
        pool.without_local()
        task = pool.world.submit("echo x > x.txt")
        (found,) = pool.world.wait(task, status=0)
        assert (found["phrase"], found["host"]) == ("done", "loud")
        assert pool.world.git("show", f"{found['ref']}:x.txt") == "x"

    @needs_own_users
    @pytest.mark.parametrize(
        ("shell", "file", "line"),
        [
            ("bash", ".profile", "PATH=$HOME/tools:$PATH; export PATH"),
            ("fish", ".config/fish/config.fish", "status is-login; and set -gx PATH $HOME/tools $PATH"),
            ("csh", ".login", "setenv PATH $HOME/tools:$PATH"),
        ],
    )
    def test_agents_are_looked_for_on_the_path_that_only_a_login_sets(self, pool, shell, file, line):
        host = pool.a_host("mini", shell)
        tool = host.home / "tools" / "codex"
        tool.parent.mkdir()
        tool.write_text("#!/bin/sh\nexit 0\n")
        tool.chmod(0o755)
        (host.home / file).parent.mkdir(parents=True, exist_ok=True)
        (host.home / file).write_text(line + "\n")
        os.system(f"chown -R {host.user} {host.home}")
        assert str(tool) in text_of(pool.add(host))
        assert pool.hosts()["mini"]["agents"] == ["codex"]


class TestWork:
    def test_tasks_land_on_both_hosts_and_come_home(self, pool):
        hosts = [pool.a_host("one"), pool.a_host("two")]
        for host in hosts:
            pool.add(host)
        pool.without_local()
        ids = [pool.world.submit("id -un > who.txt; sleep 2") for _ in range(2)]
        found = pool.world.wait(*ids, status=0)
        assert {each["host"] for each in found} == {"one", "two"}
        assert {each["phrase"] for each in found} == {"done"}
        for each in found:
            host = pool.lab.hosts[each["host"]]
            assert pool.world.git("show", f"{each['ref']}:who.txt") == host.user
        pool.world.run("close", *ids)

    def test_a_drained_host_takes_nothing_new_and_says_so(self, pool):
        for name in ("one", "two"):
            pool.add(pool.a_host(name))
        pool.without_local()
        told = pool.world.json("host", "drain", "one", "--reason", "new disk")
        assert told == {"name": "one", "state": "drained", "changed": True}
        assert pool.world.json("host", "drain", "one", "--reason", "new disk")["changed"] is False
        shown = pool.hosts()["one"]
        assert (shown["state"], shown["reason"]) == ("drained", "drained by user: new disk")
        go = pool.shared / "go"
        hold = f"while [ ! -e {quoted(str(go))} ]; do sleep 0.05; done"
        first = pool.world.submit(hold)
        eventually(lambda: pool.world.json("status", first)["phrase"] == "running")
        assert pool.world.json("status", first)["host"] == "two"
        second = pool.world.submit("echo x > x.txt")
        why = {each["host"]: each["words"] for each in pool.world.json("status", second)["rejected"]}
        assert why["one"] == "drained by user: new disk"
        assert "0 of 1 slots free" in why["two"] and "switched off" in why["local"]
        assert "new disk" in pool.world.out("status", second)
        pool.world.run("host", "enable", "one")
        (found,) = pool.world.wait(second, status=0)
        assert found["host"] == "one"
        go.touch()
        pool.world.wait(first)
        assert pool.world.json("host", "remove", "two") == {"name": "two", "removed": True, "purged": False}
        assert "--yes" in text_of(pool.world.run("host", "remove", "one", "--purge", "--json", status=64))

    def test_removal_is_refused_while_turns_run_and_purge_shows_and_removes(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        pool.without_local()
        task = pool.world.submit("sleep 60")
        eventually(lambda: pool.world.json("status", task)["phrase"] == "running")
        assert task in text_of(pool.world.run("host", "remove", "one", status=64))
        pool.world.run("cancel", task)
        pool.world.wait(task)
        told = text_of(pool.world.run("host", "remove", "one", "--purge", "--yes"))
        assert task in told and "1 mirror" in told and "removed" in told
        assert not pool.root_of(host).exists()
        assert [each["name"] for each in pool.entries()] == ["local"]
        told = text_of(pool.world.run("close", task, status=64))
        assert "HOST_UNKNOWN" in told and f"shunter close --discard {task}" in told
        pool.world.run("close", "--discard", task)

    def test_a_project_goes_where_it_was_last(self, pool):
        pool.add(pool.a_host("one"))
        pool.add(pool.a_host("two"))
        pool.without_local()
        for _ in range(2):
            assert (
                pool.world.json("submit", "-a", "exec:true", "x", "--host", "two", "--wait", status=None)["host"]
                == "two"
            )
            assert pool.world.json("submit", "-a", "exec:true", "x", "--wait", status=None)["host"] == "two"
            eventually(lambda: not pool.world.dispatcher_pids())  # the next one reads it from the store

    def test_logs_are_followed_over_ssh(self, pool):
        pool.add(pool.a_host("one"))
        pool.without_local()
        task = pool.world.submit("for i in 1 2 3; do echo line $i; sleep 0.5; done")
        eventually(lambda: pool.world.json("status", task)["phrase"] in ("running", "done"))
        assert pool.world.out("logs", "-f", task).splitlines()[:3] == ["line 1", "line 2", "line 3"]

    @needs_own_users
    def test_a_host_that_vanished_delays_nobody_and_its_turn_comes_back(self, pool):
        one, two = pool.a_host("one"), pool.a_host("two")
        pool.add(one)
        pool.add(two)
        pool.without_local()
        task = pool.world.submit("sleep 4; echo x > x.txt", "--host", "one")
        eventually(lambda: pool.world.json("status", task)["phrase"] == "running")
        one.vanish()
        started = time.monotonic()
        (other,) = pool.world.wait(pool.world.submit("echo y > y.txt"), status=0)
        assert (other["host"], other["phrase"]) == ("two", "done")
        assert time.monotonic() - started < 15
        shown = pool.hosts("--refresh")
        assert shown["one"]["state"] == "unknown" and "HOST_UNREACHABLE" in shown["one"]["reason"]
        assert shown["one"]["facts_age_s"] is not None and shown["two"]["state"] == "ready"
        one.come_back()
        (found,) = pool.world.wait(task, status=0)
        assert (found["host"], found["phrase"]) == ("one", "done")

    @needs_own_users
    def test_a_host_without_this_versions_helper_is_passed_over_with_the_command_that_mends_it(self, pool):
        one, two = pool.a_host("one"), pool.a_host("two")
        pool.add(one)
        pool.add(two)
        pool.without_local()
        shutil.rmtree(pool.root_of(one) / "bin")
        shown = pool.hosts("--refresh")["one"]
        assert shown["state"] == "outdated" and "HOST_OUTDATED" in shown["reason"]
        assert shown["hint"] == "shunter host setup one"
        (found,) = pool.world.wait(pool.world.submit("true"), status=None)
        assert found["host"] == "two"
        assert "one is ready" in text_of(pool.world.run("host", "setup", "one"))
        assert pool.hosts("--refresh")["one"]["state"] == "ready"


class TestConnections:
    def test_many_questions_share_one_connection(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        pool.hosts("--refresh")
        before = host.connections()
        for _ in range(10):
            assert pool.hosts("--refresh")["one"]["state"] == "ready"
        assert host.connections() == before

    def test_a_thousand_questions_of_many_clients_share_one_connection(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        pool.hosts("--refresh")
        before = host.connections()
        command = tuple(pool.lab.ssh_command)
        root = None if host.is_own_user else str(pool.root_of(host))
        clients = [HostClient(SshTransport("one", "one", data_root=root, command=command)) for _ in range(8)]
        try:
            for number in range(1000):
                status = clients[number % len(clients)].call("attempt.status", AttemptRef("none-1-1", "none-1"))
                assert status.state == "unknown"
        finally:
            for client in clients:
                client.close()
        assert host.connections() == before

    def test_a_server_that_allows_two_sessions_is_enough(self, pool):
        host = pool.a_host("few", options="MaxSessions 2")
        pool.add(host, "--slots", "4")
        pool.without_local()
        ids = [pool.world.submit("echo $SHUNTER_TASK > x.txt") for _ in range(4)]
        found = pool.world.wait(*ids, status=0)
        assert [each["phrase"] for each in found] == ["done"] * 4

    def test_one_process_asks_and_the_others_read_what_it_found(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        before = host.log.read_text().count("Starting session") if host.log.exists() else 0
        children = [pool.world.start("hosts", "--json") for _ in range(6)]
        answers = [child.communicate(timeout=60)[0] for child in children]
        assert all(b'"ready"' in answer for answer in answers)
        assert host.log.read_text().count("Starting session") - before <= 3


@needs_own_users
class TestHostsThatDoNotComeBack:
    """A person's word, with the host's name, ends the wait for them; nothing else does."""

    @pytest.fixture
    def one(self, pool):
        host = pool.a_host("one")
        pool.add(host)
        pool.without_local()
        return host

    def half_done(self, pool, one) -> str:
        """A turn that has begun to work; a later turn of the task says more and ends."""
        went = one.home / "went"
        went.unlink(missing_ok=True)
        script = f'[ -e x.txt ] && exec sh -c "echo more >> x.txt"; echo half > x.txt; touch "{went}"; sleep 600'
        task = pool.world.submit(script)
        eventually(lambda: pool.world.json("status", task)["phrase"] == "running" and went.exists())
        return task

    def lose(self, pool, one, task) -> None:
        one.vanish()
        pool.world.run("reconcile", status=None)
        eventually(lambda: pool.world.json("status", task)["phrase"] == "uncertain", limit_s=60)

    def test_one_that_answers_is_asked_instead(self, pool, one):
        task = self.half_done(pool, one)
        assert "lost" not in text_of(pool.world.run("cancel", task, "--force", "one", status=None))
        (found,) = pool.world.wait(task)
        assert found["turn"]["state"] == "cancelled"

    def test_each_command_names_the_way_out(self, pool, one):
        task, world = self.half_done(pool, one), pool.world
        self.lose(pool, one, task)
        assert f"shunter cancel {task} --force one" in text_of(world.run("host", "remove", "one", status=64))
        assert "is on one, not on two" in text_of(world.run("cancel", task, "--force", "two", status=64))
        assert "the cancellation is stored" in world.out("status", task)
        assert "--force one" in text_of(world.run("close", task, status=64))
        assert "cannot be asked" in world.out("result", task, status=70)
        assert "lost" in world.out("cancel", task, "--force", "one")
        shown = world.json("status", task)
        assert (shown["phrase"], shown["state"], shown["turn"]["error_code"]) == ("lost", "lost", "TURN_LOST")
        assert f"shunter fetch {task}" in world.out("result", task)
        assert world.wait(task, status=None)[0]["phrase"] == "lost"
        assert "Nothing to repair" in world.out("reconcile")
        world.run("host", "remove", "one")

    def test_what_was_given_up_is_ended_before_anybody_works_there_again(self, pool, one):
        task = self.half_done(pool, one)
        self.lose(pool, one, task)
        pool.world.run("cancel", task, "--force", "one")
        one.come_back()
        said = pool.world.json("say", task, "go on", "--wait")
        assert (said["phrase"], said["turn"]["number"]) == ("done", 2), said
        assert pool.world.git("show", f"{said['ref']}:x.txt").split() == ["half", "more"]

    def test_what_was_given_up_comes_home_when_its_host_does(self, pool, one):
        task, world = self.half_done(pool, one), pool.world
        self.lose(pool, one, task)
        world.run("cancel", task, "--force", "one")
        one.come_back()
        eventually(lambda: "fetched" in world.out("reconcile", status=None), limit_s=60, every_s=1)
        shown = world.json("status", task)
        assert (shown["turn"]["outcome"]["outcome"], shown["turn"]["error_code"]) == ("cancelled", None)
        assert world.git("show", f"{shown['ref']}:x.txt") == "half"
        assert "Nothing to repair" in world.out("reconcile")

    def test_a_result_that_stands_there_alone_is_said_to(self, pool, one):
        world = pool.world
        eventually(lambda: not world.dispatcher_pids())
        mark = world.root / "died-at"
        words = [sys.executable, str(Path(__file__).parent / "crashing_dispatcher.py"), "before ended", str(mark)]
        with subprocess.Popen(words, env=world.env, cwd="/", stdout=subprocess.PIPE) as dispatcher:
            assert [dispatcher.stdout.readline() for _ in range(2)] == [b"starting\n", b"ready\n"]
            task = world.submit("echo x > x.txt")
            eventually(mark.exists)
        self.lose(pool, one, task)
        assert world.out("cancel", task, "--force", "one").endswith("done (not at home)")
        assert f"shunter fetch {task}" in world.out("result", task)
        one.come_back()
        world.run("fetch", task)
        assert world.git("show", f"{world.json('status', task)['ref']}:x.txt") == "x"
