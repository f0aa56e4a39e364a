"""Hosts reached by ssh, against scripts with the same git steps over one multiplexed connection a host.

Real sshd on this machine, an account for each host (needs root), everything in memory. Round trips have no distance.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

from shunter.fleet.client import HostClient
from shunter.fleet.ssh import SshTransport
from shunter.wire.messages import AttemptRef

from .measure import LIMIT_S, interleaved
from .submit import STAMP, stamp_at
from .table import Row, Table
from .world import World, make_repository

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from ssh_lab import SSHD, Lab, LabHost

WARM_RUNS, ASKS, LINES, PUSHES = 15, 200, 100, 3
TURNS, SLOTS, RUNS = 200, 3, 2
AGENT = "echo more >> src/0/0.txt"
MANY_FILES = 50_000
OVER_SSH = str(Path(__file__).parent / "over_ssh.sh")
BACK = "git add -A && git -c user.name=u -c user.email=u@example.org commit -q -m more && git push -q origin HEAD"


class Pool(World):
    """A world whose hosts are reached by ssh: `one`, `two` and `three`."""

    def __init__(self, *names: str, **options: Any) -> None:
        super().__init__(**options)
        self.names = names
        self.root.chmod(0o755)
        self.lab = Lab(self.root / "lab")
        self.stamps = self.root / "stamps"
        self.stamps.mkdir()
        self.stamps.chmod(0o1777)

    def __enter__(self) -> Pool:
        super().__enter__()
        hosts = [self.lab.add(name, options="MaxSessions 64") for name in self.names]
        command = shlex.join(self.lab.ssh_command)
        for name in self.names:
            self.shunter("host", "add", name, "--ssh-command", command, "--slots", str(self.slots))
        config = self.root / "config" / "shunter" / "config.toml"
        config.write_text(config.read_text().replace('name = "local"', 'name = "local"\nenabled = false'))
        # What a person would have in ~/.ssh/config.
        with self.lab.config.open("a") as file:
            file.write(f"Host *\n  ControlMaster auto\n  ControlPath {self.root}/cm-%n\n  ControlPersist 60\n")
        self.env["GIT_SSH_COMMAND"] = command
        for host in hosts:
            host.run(f"git init -q --bare {self.mirror(host.name)}")
        return self

    def __exit__(self, *words: object) -> None:
        for name in self.names:
            leave = [*self.lab.ssh_command, "-O", "exit", name]
            subprocess.run(leave, check=False, capture_output=True, timeout=LIMIT_S)
        self.lab.close()
        super().__exit__(*words)

    def host(self, name: str) -> LabHost:
        return self.lab.hosts[name]

    def mirror(self, name: str) -> str:
        return f"{self.host(name).home}/hand.git"

    def transport(self, name: str) -> SshTransport:
        return SshTransport(name, name, command=tuple(self.lab.ssh_command))


def run() -> list[Table]:
    if os.geteuid() != 0 or SSHD is None:
        sys.exit("bench: pool needs root and an OpenSSH server")
    return [submit_table(), round_trip_table(), turns_table(), push_table(), follow_table()]


def submit_table() -> Table:
    with Pool("one") as pool:
        numbers, enqueued = count(), []

        def by_shunter() -> float:
            stamp = pool.stamps / f"ours-{next(numbers)}"
            began = time.time()
            task = pool.shunter("submit", "-a", f"exec:bash -c '{STAMP}' {stamp}", "do it")
            at = stamp_at(stamp)
            pool.wait_settled(task)
            enqueued.append((at - pool.json("status", task)["created_at"]) * 1000)
            return (at - began) * 1000

        def by_hand() -> float:
            name = f"hand-{next(numbers)}"
            stamp = pool.stamps / name
            argv = [OVER_SSH, str(pool.repo), "one", pool.mirror("one"), f"{pool.host('one').home}/{name}", name]
            began = time.time()
            subprocess.run([*argv, "bash", "-c", STAMP, str(stamp)], env=pool.env, check=True, timeout=LIMIT_S)
            return (stamp_at(stamp) - began) * 1000

        ours, theirs = interleaved(WARM_RUNS, by_shunter, by_hand)
        rows = [
            Row("warm: dispatcher leads, session open", ours, theirs, times=1.3),
            Row("warm, from the stored row on", enqueued[1:], theirs, times=1.3),
        ]
    return Table("From submit to the agent's first act, over ssh", "script, multiplexed ssh", rows)


def round_trip_table() -> Table:
    ask = AttemptRef("0123456789-1-abcdef", "0123456789-1")
    with Pool("one", files=1, commits=1) as pool:
        client = HostClient(pool.transport("one"))
        bare = [*pool.lab.ssh_command, "one", "true"]

        def ours() -> float:
            began = time.perf_counter()
            client.call("attempt.status", ask)
            return (time.perf_counter() - began) * 1000

        def by_hand() -> float:
            began = time.perf_counter()
            subprocess.run(bare, env=pool.env, check=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S)
            return (time.perf_counter() - began) * 1000

        try:
            asked, ran = interleaved(ASKS, ours, by_hand)
        finally:
            client.close()
    return Table("Round trip over ssh", "multiplexed `ssh HOST true`", [Row("`attempt.status`", asked, ran, times=1)])


def turns_table() -> Table:
    """Against two scripts: one with the same git steps for every turn, one that sends and fetches once for all."""
    parallel = shutil.which("parallel")
    names = ("one", "two", "three")
    with Pool(*names, slots=SLOTS) as pool:
        numbers = "".join(f"{number}\n" for number in range(TURNS)).encode()
        runs = count()

        def by_shunter() -> float:
            began = time.time()
            argv = [sys.executable, "-m", "bench.many", "--plain", str(pool.repo), str(TURNS), f"exec:sh -c '{AGENT}'"]
            root = Path(__file__).parent.parent
            subprocess.run(argv, cwd=root, env=pool.env, check=True, stdout=subprocess.PIPE, timeout=5 * LIMIT_S)
            return time.time() - began

        def clear_hosts() -> float:
            for name in names:
                pool.host(name).run(f"rm -rf hand.git hand && git init -q --bare {pool.mirror(name)} && mkdir hand")
                subprocess.run([*pool.lab.ssh_command, name, "true"], env=pool.env, check=True, timeout=LIMIT_S)
            return time.time()

        def run_parallel(*words: str, **env: str) -> None:
            argv = [str(parallel), "--will-cite", *words]
            subprocess.run(argv, env={**pool.env, **env}, input=numbers, check=True, timeout=5 * LIMIT_S)

        def each_by_itself() -> float:
            run, began = next(runs), clear_hosts()
            homes = " ".join(f"[{name}]={pool.host(name).home}" for name in names)
            words = f"{OVER_SSH} {pool.repo} $host ${{home[$host]}}/hand.git ${{home[$host]}}/hand/{{}} {run}-{{}}"
            hosts = " ".join(names)
            step = f"declare -A home=({homes}); hosts=({hosts}); host=${{hosts[({{%}} - 1) % {len(names)}]}}"
            step = f"{step}; exec {words} sh -c '{AGENT}'"
            run_parallel("--jobs", str(SLOTS * len(names)), shlex.join(["bash", "-c", step]), BRING_BACK="1")
            return time.time() - began

        def all_at_once() -> float:
            began = clear_hosts()
            for name in names:
                target = f"{name}:{pool.mirror(name)}"
                subprocess.run(
                    ["git", "-C", str(pool.repo), "push", "-q", target, "HEAD:refs/heads/main"], env=pool.env
                )
            logins = ",".join(f"{SLOTS}/{name}" for name in names)
            step = "git clone -q --shared -b main hand.git hand/{} && cd hand/{} && git checkout -q -b task/{}"
            step = f"{step} && (setsid sh -c '{AGENT}') && {BACK}"
            run_parallel("--ssh", shlex.join(pool.lab.ssh_command), "--sshlogin", logins, step)
            for name in names:
                fetch = ["git", "-C", str(pool.repo), "fetch", "-q", f"{name}:{pool.mirror(name)}"]
                subprocess.run([*fetch, "+refs/heads/task/*:refs/remotes/by-hand/*"], env=pool.env, check=True)
            return time.time() - began

        sides = (by_shunter, each_by_itself, all_at_once) if parallel else (by_shunter,)
        ours, each, all_together = (*interleaved(RUNS, *sides), [], [])[:3]
        times = 1 if parallel else None
        rows = [
            Row(f"{TURNS} turns, {SLOTS} slots on each of three hosts", ours, each, unit="s", times=times),
            Row("against one push and one fetch a host", ours, all_together, unit="s", times=times),
        ]
    notes = [] if parallel else ["GNU parallel is not installed, so there is no comparison"]
    return Table("Many trivial turns on three hosts", "GNU parallel", rows, notes)


def push_table() -> Table:
    """The time of the step that sends the base, for a repository of many files; later ones find it there."""
    with Pool("one", files=1, commits=1) as pool:
        numbers = count()
        firsts: list[list[float]] = [[], []]
        seconds: list[list[float]] = [[], []]
        sizes: list[float] = []
        for _ in range(PUSHES):
            number = next(numbers)
            repo = pool.root / f"many-{number}"
            make_repository(repo, env=pool.env, files=MANY_FILES, commits=1, file_bytes=200)
            pool.repo = repo
            for times in (firsts, seconds):
                task = pool.json("submit", "-a", "exec:true", "--wait", "x")["id"]
                times[0].append(pool.json("status", task)["timing"][0]["stages"][2][1])
                began = time.time()
                subprocess.run(
                    ["git", "-C", str(repo), "push", "-q", f"one:{pool.mirror('one')}", f"HEAD:refs/heads/{number}"],
                    env=pool.env,
                    check=True,
                    timeout=LIMIT_S,
                )
                times[1].append(time.time() - began)
            packs = (pool.host("one").home / ".local/share/shunter/mirrors").rglob("*.pack")
            sizes.append(max(each.stat().st_size for each in packs) / (1 << 20))
            shutil.rmtree(repo)
        rows = [
            Row(f"{MANY_FILES} files, first time", firsts[0], firsts[1], unit="s"),
            Row("second time, same commit", seconds[0], seconds[1], unit="s"),
            Row("sent the first time", sizes, unit="MiB"),
        ]
    return Table("Sending a base over ssh", "`git push`", rows)


def follow_table() -> Table:
    """From a line that the agent writes to the follower's output."""
    writer = f'for i in $(seq {LINES}); do echo "$EPOCHREALTIME"; sleep 0.1; done'
    with Pool("one", files=1, commits=1) as pool:
        argv = [str(Path(sys.executable).parent / "shunter"), "submit", "-a", f"exec:bash -c '{writer}'", "x"]
        task = subprocess.run(
            argv, cwd=pool.repo, env=pool.env, check=True, capture_output=True, text=True
        ).stdout.strip()
        ours = delays([argv[0], "logs", "-f", "--raw", task], pool)
        line = (
            f"bash -c {shlex.quote(writer)} > followed & tail -n +1 -f followed & sleep {LINES * 0.1 + 2:.0f}; kill %2"
        )
        theirs = delays([*pool.lab.ssh_command, "one", line], pool)
        rows = [Row("a line, agent to terminal", ours, theirs, at_most=200)]
    return Table("Following a log over ssh", "`ssh HOST tail -f`", rows)


def delays(argv: list[str], pool: Pool) -> list[float]:
    child = subprocess.Popen(argv, cwd=pool.repo, env=pool.env, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert child.stdout is not None
    found = [(time.time() - float(line)) * 1000 for line in child.stdout if line[:1].isdigit()]
    child.wait(timeout=LIMIT_S)
    return found[5:]  # what was written before anybody followed is no delay
