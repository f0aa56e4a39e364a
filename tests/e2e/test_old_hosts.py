"""Hosts as old as is promised (Debian 11: Python 3.9, git 2.30), with systemd, and former helpers on them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from e2e_world import eventually
from machine_lab import Machine, MachineHost, debian11_root
from pool_world import text_of

import shunter

pytestmark = pytest.mark.timeout(700)  # the first one may wait for the download
KILLS = {"etc/systemd/logind.conf.d/lab.conf": "[Login]\nKillUserProcesses=yes\n"}


@pytest.fixture(scope="session")
def base():
    return debian11_root()


@pytest.fixture
def boot(base, pool):
    """Machines of one test; they go before the pool's directory does."""
    made = []

    def start(**files: str) -> Machine:
        made.append(Machine(pool.shared / f"machine{len(made)}", base, **files))
        return made[-1]

    yield start
    for machine in made:
        machine.close()


def a_former_version(pool) -> str:
    """An installation of an earlier version: its helper has another name and digest. The command."""
    place = pool.shared / "former"
    shutil.copytree(Path(shunter.__file__).parent, place / "src/shunter", ignore=shutil.ignore_patterns("__pycache__"))
    init = place / "src/shunter/__init__.py"
    text = init.read_text()
    assert f'"{shunter.__version__}"' in text
    init.write_text(text.replace(f'"{shunter.__version__}"', '"0.0.9"'))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=60)
    (packages,) = place.glob("lib/*/site-packages")
    (packages / "former.pth").write_text(f"{place / 'src'}\n{Path(click.__file__).parent.parent}\n")
    command = place / "bin/shunter"
    command.write_text(Path(pool.world.program).read_text().replace(sys.executable, str(place / "bin/python")))
    command.chmod(0o755)
    return str(command)


class TestDebian11:
    def test_all_of_a_turn_works_there(self, pool, boot):
        host = MachineHost(pool.lab, boot(), "old")
        told = text_of(pool.add(host, "--slots", "2"))
        assert "old is ready" in told and "FAILED" not in told
        assert " 3.9." in told and " 2.30." in told
        assert "FAILED" not in text_of(pool.world.run("host", "check", "old"))
        shown = pool.hosts("--refresh")["old"]
        facts = shown["facts"]
        assert shown["state"] == "ready" and shown["system"] == "linux"
        measured = ("memory_total_mb", "memory_available_mb", "disk_free_mb", "cpu_ticks", "cpus")
        assert all(facts[each] for each in measured)
        pool.without_local()
        task = pool.world.submit("for i in 1 2 3; do echo line $i; sleep 0.5; done; python3 -V > python.txt")
        eventually(lambda: pool.world.json("status", task)["phrase"] in ("running", "done"))
        assert pool.world.out("logs", "-f", task).splitlines()[:3] == ["line 1", "line 2", "line 3"]
        (found,) = pool.world.wait(task, status=0)
        assert found["phrase"] == "done"
        assert pool.world.git("show", f"{found['ref']}:python.txt").startswith("Python 3.9.")
        assert "python.txt" in pool.world.out("result", task)
        running = pool.world.submit("echo kept > kept.txt; setsid sleep 600 & sleep 600")
        eventually(lambda: pool.world.json("status", running)["phrase"] == "running")
        eventually(lambda: len(host.processes("600")) >= 2)
        pool.world.run("cancel", running)
        (found,) = pool.world.wait(running)
        assert found["phrase"] == "cancelled" and host.processes("sleep") == []
        assert pool.world.git("show", f"{found['ref']}:kept.txt") == "kept"
        pool.world.run("close", task, running)
        assert "removed" in text_of(pool.world.run("host", "remove", "old", "--purge", "--yes"))
        left = sorted(str(each) for each in pool.root_of(host).rglob("*"))
        assert not pool.root_of(host).exists(), left

    def test_set_up_mends_an_outdated_helper_while_a_turn_runs_under_it(self, pool, boot):
        host = MachineHost(pool.lab, boot(), "old")
        present, pool.world.program = pool.world.program, a_former_version(pool)
        pool.add(host, "--slots", "2")
        pool.without_local()
        gate = "while [ ! -e ~/go ]; do sleep 0.05; done; echo $0 > x.txt"
        first = pool.world.submit(gate)
        eventually(lambda: pool.world.json("status", first)["phrase"] == "running")
        for pid in pool.world.dispatcher_pids():
            os.kill(pid, 9)
        helpers = os.listdir(pool.root_of(host) / "lib")
        assert len(helpers) == 1

        pool.world.program = present
        shown = pool.hosts("--refresh")["old"]
        assert (shown["state"], shown["hint"]) == ("outdated", "shunter host setup old")
        assert "HOST_OUTDATED" in text_of(pool.world.run("host", "check", "old", status=69))
        second = pool.world.submit("echo y > y.txt")
        eventually(lambda: pool.world.json("status", first)["phrase"] == "uncertain")
        why = {each["host"]: each for each in pool.world.json("status", second)["rejected"]}
        assert why["old"]["code"] == "HOST_OUTDATED" and "host setup old" in why["old"]["words"]

        assert "old is ready" in text_of(pool.world.run("host", "setup", "old"))
        assert pool.hosts("--refresh")["old"]["state"] == "ready"
        (found,) = pool.world.wait(second, status=0)
        assert found["phrase"] == "done" and pool.world.json("status", first)["phrase"] == "running"
        assert set(helpers) < set(os.listdir(pool.root_of(host) / "lib"))
        assert any(helpers[0] in line for line in self.supervisors(host))
        (host.home / "go").touch()
        (found,) = pool.world.wait(first, status=0)
        assert found["phrase"] == "done" and pool.world.git("show", f"{found['ref']}:x.txt")
        # Its files go once nothing used them for a week.
        for folder in ("lib", "bin"):
            for name in os.listdir(pool.root_of(host) / folder):
                os.utime(pool.root_of(host) / folder / name, (1, 1))
        assert "former helpers" in text_of(pool.world.run("host", "setup", "old"))
        (left,) = os.listdir(pool.root_of(host) / "lib")
        assert left not in helpers

    @staticmethod
    def supervisors(host) -> list[str]:
        return [Path(f"/proc/{pid}/cmdline").read_text() for pid in host.processes("shunter.host.supervisor")]


class TestLogout:
    """systemd-logind may end what a session leaves behind."""

    def test_without_lingering_set_up_names_the_setting_and_with_it_a_turn_survives(self, pool, boot):
        machine = boot(files=KILLS)
        host = MachineHost(pool.lab, machine, "old")
        told = text_of(pool.add(host, status=69))
        assert "ends with the session" in told and "loginctl enable-linger old" in told
        assert "logout" in pool.hosts("--refresh")["old"]["reason"]
        machine.inside("loginctl enable-linger old")
        assert "old is ready" in text_of(pool.world.run("host", "setup", "old"))
        pool.without_local()
        task = pool.world.submit("while [ ! -e ~/go ]; do sleep 0.05; done; echo x > x.txt")
        eventually(lambda: pool.world.json("status", task)["phrase"] == "running")
        for pid in pool.world.dispatcher_pids():
            os.kill(pid, 9)
        pool.lab.close()
        eventually(lambda: "old" not in machine.inside("loginctl list-sessions --no-legend"))
        assert host.processes("shunter.host.supervisor")
        (host.home / "go").touch()
        pool.world.run("reconcile")
        (found,) = pool.world.wait(task, status=0)
        assert found["phrase"] == "done" and pool.world.git("show", f"{found['ref']}:x.txt") == "x"

    def test_where_logind_ends_nothing_no_lingering_is_asked_for(self, pool, boot):
        host = MachineHost(pool.lab, boot(), "old")
        told = text_of(pool.add(host))
        assert "goes on after it" in told and "linger" not in told
