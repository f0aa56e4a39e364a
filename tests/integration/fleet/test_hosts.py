"""The parts of a pool against a real sshd, in this process: observation, proof, former helpers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from ssh_lab import SSHD, Lab

from shunter.fleet.client import HostClient
from shunter.fleet.inventory import add_host_entry
from shunter.fleet.ssh import SshTransport, socket_options
from shunter.service.home import Home
from shunter.service.pool import acquaint, observe_pool
from shunter.service.proof import clock, file_system, prove_host
from shunter.wire.messages import Nothing, Proof, Sleeper, Slept, Tidied, TidyAsk

pytestmark = [
    pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here"),
    pytest.mark.timeout(120),
]


@pytest.fixture
def lab():
    shared = Path(tempfile.mkdtemp(prefix="shunter-lab-"))
    shared.chmod(0o755)
    made = Lab(shared / "lab")
    yield made
    made.close()
    shutil.rmtree(shared, ignore_errors=True)


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Home()


def join(home: Home, lab: Lab, name: str, **options) -> SshTransport:
    host = lab.add(name, **options)
    root = str(host.home / "data")
    add_host_entry(home.places, {"name": name, "ssh": name, "ssh_command": lab.ssh_command, "data_root": root})
    transport = SshTransport(name, name, data_root=root, command=tuple(lab.ssh_command))
    transport.install()
    return transport


def test_fifty_looks_at_the_pool_open_one_connection(home, lab):
    join(home, lab, "one")
    before = lab.hosts["one"].connections()
    for _ in range(50):
        found = {host.name: host for host in observe_pool(Home(), refresh=True)}
        assert found["one"].state == "ready"
    assert lab.hosts["one"].connections() - before <= 1


def test_a_host_that_never_answered_is_asked_who_it_is_once(home, lab):
    join(home, lab, "one")
    assert set(acquaint(home)) == {"one"}
    before = lab.hosts["one"].connections()
    assert acquaint(home)["one"].hello is not None
    assert lab.hosts["one"].connections() == before
    assert not home.places.host_data_root.exists()  # nothing ever ran on this machine


def test_a_host_that_hangs_delays_the_others_by_the_limit_alone(home, lab, monkeypatch):
    join(home, lab, "one")
    join(home, lab, "two")
    leave(lab, "two")  # before it hangs: a master that is just ending lets ssh make a connection of its own
    lab.hosts["two"].vanish("sleep 60")
    monkeypatch.setattr("shunter.service.pool.LIMIT_S", 3.0)
    started = time.monotonic()
    found = {host.name: host for host in observe_pool(home)}
    assert time.monotonic() - started < 8
    assert found["one"].state == "ready" and found["two"].state == "unknown"
    started = time.monotonic()  # what was seen just now is not asked again
    assert observe_pool(Home())[-1].state == "unknown"
    assert time.monotonic() - started < 1


def leave(lab: Lab, name: str) -> None:
    for option in socket_options():
        subprocess.run(
            [*lab.ssh_command, "-o", option, "-O", "exit", name], check=False, capture_output=True, timeout=20
        )


def test_the_proof_finds_what_it_looks_for_and_leaves_nothing(home, lab):
    join(home, lab, "one")
    entry = home.host("one")
    found = {each.what: each for each in prove_host(entry, home.places)}
    assert not [each for each in found.values() if each.ok is False]
    assert {"reached", "python", "git", "data root", "execution", "clock", "logout", "git both ways"} <= set(found)
    assert list((lab.hosts["one"].home / "data" / "mirrors").iterdir()) == []


def test_a_sleeper_that_ended_is_told(home, lab):
    client = HostClient(join(home, lab, "one"))
    try:
        sleeper: Sleeper = client.call("proof.sleep", Nothing())
        os.kill(sleeper.pid, 9)
        client.end_session()
        slept: Slept = client.call("proof.end", sleeper)
        assert slept.state == "dead"
    finally:
        client.close()


def test_former_helpers_go_only_when_nothing_runs_from_them(home, lab):
    transport = join(home, lab, "one")
    root = lab.hosts["one"].home / "data"
    client = HostClient(transport)
    client.session()
    old = {"aaaaaaaaaaaaaaaa": "in use", "bbbbbbbbbbbbbbbb": "idle", "cccccccccccccccc": "young"}
    for digest, use in old.items():
        (root / "lib" / digest).mkdir()
        (root / "bin" / f"shunter-host-0.0.1-{digest}.pyz").write_bytes(b"")
        for path in (root / "lib" / digest, root / "bin" / f"shunter-host-0.0.1-{digest}.pyz"):
            if use != "young":
                os.utime(path, (1, 1))
            if lab.hosts["one"].is_own_user:
                shutil.chown(path, lab.hosts["one"].user)
    words = [sys.executable if not lab.hosts["one"].is_own_user else "/bin/sh", "-c"]
    code = "import time;time.sleep(60)" if not lab.hosts["one"].is_own_user else "sleep 60; :"
    options = {"user": lab.hosts["one"].user} if lab.hosts["one"].is_own_user else {}
    runs = subprocess.Popen([*words, code, str(root / "lib" / "aaaaaaaaaaaaaaaa")], cwd="/", **options)
    try:
        tidied: Tidied = client.call("host.tidy", TidyAsk(3600.0))
    finally:
        runs.kill()
        runs.wait()
        client.close()
    assert {path.rpartition("/")[2] for path in tidied.removed} == {
        "bbbbbbbbbbbbbbbb",
        "shunter-host-0.0.1-bbbbbbbbbbbbbbbb.pyz",
    }
    assert transport.helper.digest in os.listdir(root / "lib")
    assert {"aaaaaaaaaaaaaaaa", "cccccccccccccccc"} <= set(os.listdir(root / "lib"))


def a_proof(**facts) -> Proof:
    whole = {"file_system": "ext4", "mount_point": "/", "locks": True, "executes": True, "lingers": None}
    return Proof(**{"now": 0.0, "user": "me", "home": "/home/me", "home_writable": True, **whole, **facts})


@pytest.mark.parametrize(
    ("facts", "fine"),
    [
        ({}, True),
        ({"file_system": "9p", "mount_point": "/mnt/c"}, False),
        ({"file_system": "drvfs"}, False),
        ({"file_system": "fuse.sshfs"}, False),
        ({"file_system": "fuseblk"}, False),
        ({"file_system": "nfs4", "locks": True}, True),
        ({"file_system": "nfs4", "locks": False}, False),
        ({"file_system": "nfs4", "locks": None}, False),
        ({"locks": False}, False),
        ({"executes": False}, False),
        ({"home_writable": False}, True),
        ({"file_system": None, "locks": None}, True),
    ],
)
def test_which_file_systems_a_data_root_may_be_on(facts, fine):
    found = list(file_system(a_proof(**facts), "/data"))
    assert all(each.ok is not False for each in found) is fine
    assert all(each.remedy for each in found if each.ok is False)


@pytest.mark.parametrize(
    ("theirs", "words", "ok"),
    [
        (100.2, "as here", True),
        (103.0, "ahead of", True),
        (160.0, "59.5 s ahead of", None),
        (40.0, "60.0 s behind", None),
    ],
)
def test_the_clock_is_compared_within_what_the_call_took(theirs, words, ok):
    found = clock(theirs, 100.0, 100.5)
    assert words in found.found and found.ok is ok


@pytest.mark.parametrize(("off_s", "is_a_zone"), [(7200.0, True), (-3630.0, True), (5400.0, False), (86400.0, False)])
def test_a_clock_that_is_whole_hours_off_is_told_from_one_that_drifted(off_s, is_a_zone):
    found = clock(100.0 + off_s, 100.0, 100.0)
    assert found.ok is None and ("takes local time for UTC" in found.found) is is_a_zone
    assert ("set-local-rtc 0" in found.remedy) is is_a_zone and "set-ntp true" in found.remedy
