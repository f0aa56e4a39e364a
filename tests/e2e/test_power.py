"""Power, links and connections of hosts fail: no turn runs twice, none stays unknown, nothing that was done is lost."""

from __future__ import annotations

import json
import pwd
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from campaign.cuts import run as run_campaign
from e2e_world import eventually
from netns_lab import NetnsHost, NetnsLab, require_hosts
from pool_world import Pool

pytestmark = pytest.mark.timeout(200)
NOTICED_S = 45.0  # a half-open link is noticed within 30 s; the rest is for a slow machine

# Takes the pids that are wanted, as a user; each writes down every signal that comes. argv: directory, user id, pids
STRANGERS = """
import os, signal, sys
told, uid = sys.argv[1], int(sys.argv[2])

def take(wanted):
    try:
        with open("/proc/sys/kernel/ns_last_pid", "w") as file:
            file.write(str(wanted - 1))
    except OSError:
        pass  # then by making processes until it is our turn
    while True:
        pid = os.fork()
        if pid == 0 and os.getpid() == wanted:
            live(wanted)
        if pid == 0:
            os._exit(0)
        if pid == wanted:
            return
        os.waitpid(pid, 0)
        assert pid < wanted, f"pid {wanted} is taken"

def live(pid):
    os.setsid()
    os.setgid(uid)
    os.setuid(uid)
    log = os.open(f"{told}/told-{pid}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, lambda number, frame: os.write(log, b"%d\\n" % number))
    for fd in range(3):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    os.write(log, b"ready\\n")
    while True:
        signal.pause()

for word in sys.argv[3:]:
    take(int(word))
"""


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory):
    require_hosts()
    made = Pool(tmp_path_factory.mktemp("power"), NetnsLab)
    try:
        made.marks = made.shared / "marks"
        made.marks.mkdir()
        made.marks.chmod(0o777)
        for name in ("one", "two", "three", "four"):
            made.add(made.a_host(name), "--slots", "2")
        made.without_local()
        yield made
    finally:
        made.close()


@pytest.fixture
def pool(shared_pool):
    """All hosts as after a boot, before and after."""
    for mark in shared_pool.marks.iterdir():
        mark.unlink()
    yield shared_pool
    for host in shared_pool.lab.hosts.values():
        host.heal()


def waits(pool: Pool, name: str = "go") -> str:
    """A turn that counts its launch and waits for the mark."""
    return (
        f'echo "$SHUNTER_ATTEMPT" >> {pool.marks}/launches-$SHUNTER_TASK; '
        f"while [ ! -e {pool.marks}/{name} ]; do sleep 0.05; done"
    )


def held(pool: Pool, name: str = "go") -> str:
    """The same, and then it has a result."""
    return f'{waits(pool, name)}; echo "$SHUNTER_TASK" > x.txt; git add x.txt; git commit -qm x'


def launches(pool: Pool, task: str) -> int:
    path = pool.marks / f"launches-{task}"
    return len(path.read_text().splitlines()) if path.exists() else 0


def submit_on(pool: Pool, host: str, script: str) -> str:
    """A turn that runs there now."""
    task = pool.world.submit(script, "--host", host)
    eventually(lambda: phrase(pool, task) == "running", every_s=0.1)
    return task


def phrase(pool: Pool, task: str) -> str:
    return pool.world.json("status", task)["phrase"]


def settled(pool: Pool, task: str, *, limit_s: float = 100.0) -> dict:
    """A dispatcher that died in between is no hindrance."""
    pool.world.run("reconcile")
    eventually(lambda: pool.world.json("status", task)["turn"]["step"] == "settled", limit_s=limit_s, every_s=0.2)
    return pool.world.json("status", task)


def came_home_once(pool: Pool, task: str) -> dict:
    found = settled(pool, task)
    assert (found["phrase"], found["turn"]["error_code"]) == ("done", None), found
    assert pool.world.git("show", f"{found['ref']}:x.txt") == task
    assert launches(pool, task) == 1
    return found


def kinds_of_events(pool: Pool, task: str) -> list[str]:
    return [event["kind"] for event in pool.world.json("status", task)["events"]]


def job_of(pool: Pool, host: NetnsHost, task: str) -> Path:
    attempt = pool.world.json("status", task)["turn"]["attempt_id"]
    return pool.root_of(host) / "jobs" / attempt


class TestPower:
    def test_a_power_cut_costs_the_turn_but_neither_its_work_nor_a_stranger_with_its_pid(self, pool):
        host = pool.lab.hosts["one"]
        work = "echo half > half.txt; git add half.txt; git commit -qm half; echo rest > rest.txt; sync; "
        task = submit_on(pool, "one", f"{work}{held(pool, 'never')}")
        eventually(lambda: launches(pool, task))
        job = job_of(pool, host, task)
        supervisor = json.loads((job / "supervisor").read_text())
        launched = json.loads((pool.root_of(host) / "signals" / f"{job.name}.launched").read_text())
        host.reboot(sshd=False)
        assert host.boot_file.read_text().strip() != supervisor["boot_id"]
        strangers = become(host, pool.marks, supervisor["pid"], launched["pid"])
        host.start_sshd()

        found = settled(pool, task)
        assert (found["phrase"], found["state"], found["host"]) == ("lost", "open", "one"), found
        assert "supervisor_died" in found["turn"]["outcome"]["evidence"]
        assert found["turn"]["error_code"] == "TURN_LOST"
        for pid, started in strangers.items():
            assert start_of(host, pid) == started
            assert (pool.marks / f"told-{pid}").read_text() == "ready\n"
        workspace = pool.root_of(host) / "tasks" / task / "workspace"
        for name in ("half", "rest"):
            assert (workspace / f"{name}.txt").read_text() == f"{name}\n"
            assert pool.world.git("show", f"{found['ref']}:{name}.txt") == name
        assert launches(pool, task) == 1
        assert pool.ledger(host, "SELECT attempt_id FROM lease") == []
        (pool.marks / "never").touch()
        further = pool.world.json("say", task, "go on", "--wait", status=None)
        assert (further["host"], further["turn"]["number"], further["phrase"]) == ("one", 2, "done"), further
        assert pool.world.git("show", f"{further['ref']}:rest.txt") == "rest"

    def test_what_ended_before_the_power_cut_is_told_as_it_ended(self, pool):
        host = pool.lab.hosts["two"]
        task = submit_on(pool, "two", held(pool))
        host.link_down()
        (pool.marks / "go").touch()
        job = job_of(pool, host, task)
        eventually(
            lambda: pool.ledger(host, f"SELECT end FROM attempt WHERE attempt_id='{job.name}' AND state='ended'")
        )
        host.reboot()
        came_home_once(pool, task)


class TestLinks:
    def test_a_link_that_dies_without_a_word_is_noticed_and_nobody_else_waits(self, pool):
        """Three ways at once: the link is down, its packets are dropped, its server stands still."""
        hosts = {name: pool.lab.hosts[name] for name in ("one", "two", "three")}
        tasks = {name: submit_on(pool, name, held(pool, f"go-{name}")) for name in hosts}
        hosts["one"].link_down()
        hosts["two"].drop_packets()
        hosts["three"].freeze_sessions()
        other = submit_on(pool, "four", held(pool, "go-four"))
        (pool.marks / "go-four").touch()
        came_home_once(pool, other)

        (pool.marks / "go-one").touch()  # it ends while nobody can ask
        for name in ("one", "two"):
            eventually(lambda name=name: phrase(pool, tasks[name]) == "uncertain", limit_s=NOTICED_S, every_s=0.2)
            told = pool.world.out("status", tasks[name])
            assert "uncertain for " in told and "HOST_UNREACHABLE" in told, (name, told)
        # The third one's sshd takes new connections, so the doubt is over at once.
        eventually(lambda: "certain" in kinds_of_events(pool, tasks["three"]), limit_s=NOTICED_S, every_s=0.2)
        assert phrase(pool, tasks["three"]) == "running"
        for host in hosts.values():
            host.heal()
        for name, task in tasks.items():
            (pool.marks / f"go-{name}").touch()
            came_home_once(pool, task)


class TestConnections:
    @pytest.mark.parametrize("kind", ["master", "session", "server", "key"])
    def test_a_connection_that_is_cut_at_every_step_of_a_turn_costs_nothing(self, pool, kind):
        host: NetnsHost = pool.lab.hosts["one"]
        codes = {"server": "HOST_UNREACHABLE", "key": "HOST_KEY"}
        eventually(lambda: not pool.world.dispatcher_pids())
        steps = pool.world.root / f"steps-{kind}"
        steps.mkdir()
        script = Path(__file__).parent / "cutting_dispatcher.py"
        log = (pool.world.state / "dispatcher.log").open("ab")
        dispatcher = subprocess.Popen(
            [sys.executable, str(script), str(steps)], env=pool.world.env, cwd="/", stdout=subprocess.PIPE, stderr=log
        )
        try:
            assert dispatcher.stdout is not None
            assert [dispatcher.stdout.readline() for _ in range(2)] == [b"starting\n", b"ready\n"]
            task = pool.world.submit(held(pool), "--host", "one")
            for step in ("claimed", "leased", "shipped", "accepted", "running", "ended", "fetched"):
                mark = steps / f"before {step}"
                eventually(mark.exists)
                if kind == "session":
                    host.kill_sessions()
                else:
                    if kind == "key":
                        host.new_key()
                    if kind in ("server", "key"):
                        host.stop_sshd()
                    if kind == "key":
                        host.start_sshd()
                    if not host.kill_master():  # a connection made while the old master went is shared with nobody
                        host.kill_sessions()
                mark.unlink()
                if kind in codes and step != "fetched":  # that one asks nothing of a host
                    # One that is asked while it goes is only not reached; before acceptance nobody asks it again then.
                    may_wait = step in ("claimed", "leased")
                    said = {codes[kind], "HOST_UNREACHABLE"} if may_wait else {codes[kind]}
                    lines = [f"turn {task}-1 at {step}: {code}" for code in said]
                    eventually(lambda lines=lines: any(line in pool.world.log() for line in lines))
                if kind in codes and step == "ended":
                    assert codes[kind] in pool.world.out("status", task)
                host.trust()
                if kind == "server":
                    host.start_sshd()
                if step == "running":
                    (pool.marks / "go").touch()
            came_home_once(pool, task)
        finally:
            dispatcher.kill()
            dispatcher.wait()

    def test_a_host_key_that_changed_is_named_and_once_it_is_trusted_the_turn_goes_on(self, pool):
        host = pool.lab.hosts["one"]
        task = submit_on(pool, "one", held(pool))
        host.new_key()
        host.stop_sshd()
        host.start_sshd()
        host.kill_master()
        eventually(lambda: "HOST_KEY" in pool.world.out("status", task), every_s=0.2)
        assert phrase(pool, task) == "uncertain"
        shown = pool.hosts("--refresh")["one"]
        assert shown["state"] == "untrusted" and "HOST_KEY" in shown["reason"] and "ssh-keygen" in shown["hint"]
        (pool.marks / "go").touch()
        host.trust()
        came_home_once(pool, task)

    def test_who_follows_the_output_gets_every_byte_once_across_cuts(self, pool):
        host = pool.lab.hosts["one"]
        lines = f"while [ ! -e {pool.marks}/go ]; do i=$((i+1)); echo line $i of many; sleep 0.002; done"
        task = submit_on(pool, "one", f"{lines}; {held(pool)}; echo end")
        follower = pool.world.start("logs", "-f", "--raw", task)
        received: list[bytes] = []
        reader = threading.Thread(target=lambda: received.extend(iter(lambda: follower.stdout.read1(65536), b"")))
        reader.start()
        for cut in (host.kill_master, host.kill_sessions, host.drop_packets, host.kill_sessions, host.kill_master):
            before = len(received)
            eventually(lambda before=before: len(received) > before + 3)
            cut()
            if cut == host.drop_packets:
                time.sleep(2)
                host.undrop_packets()
        (pool.marks / "go").touch()
        came_home_once(pool, task)
        assert follower.wait(timeout=30) == 0
        reader.join(timeout=30)
        stored = (job_of(pool, host, task) / "stdout").read_bytes()
        assert stored.endswith(b"of many\nend\n")
        assert b"".join(received) == stored


class TestDisk:
    def test_a_full_disk_costs_nothing_and_is_named(self, pool):
        host = pool.a_host("small", disk_mb=2048)
        try:
            pool.add(host, "--slots", "2")
            task = submit_on(pool, "small", f'echo "$SHUNTER_TASK" > x.txt; {waits(pool)}')
            eventually(lambda: launches(pool, task))
            host.fill_disk()
            (pool.marks / "go").touch()
            pinned = pool.world.submit("true", "--host", "small")
            shown = pool.hosts("--refresh")["small"]
            assert shown["state"] == "unfit" and "make room there" in shown["reason"]
            assert b"free at least" in pool.world.run("host", "check", "small", status=69).stdout
            (free,) = pool.world.wait(pool.world.submit("true"), status=0)
            assert free["host"] != "small"
            assert "disk is full" in pool.world.out("status", pinned)
            assert phrase(pool, task) in ("running", "uncertain")
            host.free_disk()
            assert settled(pool, pinned)["phrase"] == "no_changes"
            came_home_once(pool, task)
        finally:
            pool.world.run("host", "remove", "small", status=None)


@pytest.mark.parametrize("seed", [7])
def test_a_short_campaign_of_random_cuts_breaks_nothing(tmp_path, seed):
    require_hosts()
    assert run_campaign(tmp_path, rounds=9, seed=seed, say=print) == []


def become(host: NetnsHost, told: Path, *pids: int) -> dict[int, int]:
    """Give pids of the host to new processes of its user; when each of those started."""
    words = [str(told), str(pwd.getpwnam(host.user).pw_uid), *(str(pid) for pid in sorted(pids))]
    host.inside("/usr/bin/python3", "-I", "-S", "-c", STRANGERS, *words)
    logs = [told / f"told-{pid}" for pid in pids]
    eventually(lambda: all(log.exists() and log.read_text() == "ready\n" for log in logs))
    return {pid: start_of(host, pid) for pid in pids}


def start_of(host: NetnsHost, pid: int) -> int:
    return int(host.inside("cat", f"/proc/{pid}/stat").rpartition(")")[2].split()[19])
