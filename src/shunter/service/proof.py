"""Proving a host before it is used (X16): each thing that a turn needs is tried, and each failure has its remedy.

Nothing that the proof makes is left behind: a mirror named `proof-…`, a sleeping process, a lease of no slots.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..agents.table import COMMANDS, MODULES, load
from ..agents.versions import doubt_version
from ..dispatch.hosts import LEAST_FREE_MB, HostEntry, make_transport, reached_as, sandbox_names, unknown_words
from ..fleet.client import HostClient
from ..fleet.observations import answered, record_observation
from ..fleet.places import Places
from ..fleet.ssh import OWN_CONNECTION
from ..git.transfer import Transfer, fetch_result, held_result_ref, push_base
from ..host.gitrun import run_git
from ..wire.errors import ShunterError
from ..wire.ids import new_attempt_id, new_task_id, turn_id
from ..wire.messages import (
    AgentFacts,
    Facts,
    FactsAsk,
    Hello,
    Lease,
    LeaseAsk,
    LeaseRef,
    MirrorAsk,
    MirrorReady,
    Nothing,
    Proof,
    ProofRef,
    Sleeper,
    Slept,
)

OLDEST_PYTHON = (3, 9)
OLDEST_GIT = (2, 30)
GOOD_DISK_MB = 1024  # less is told; below LEAST_FREE_MB the host takes no turns
LEAST_PROCESSES = 24  # supervisor, helper, and git with a thread for each core
START_LIMIT_S = 10.0
CLOCK_LIMIT_S = 5.0
LARGEST_ZONE_H = 14
ZONE_SLACK_S = 60.0  # a clock that was set by hand, by a person who looked at another one
# Locks or execution fail there, or every file takes a hundred times as long (9p and drvfs are Windows drives in WSL).
FOREIGN = ("9p", "drvfs", "v9fs", "vboxsf", "vmhgfs", "cifs", "smb3", "smbfs", "ncpfs", "afs")
NETWORK = ("nfs", "nfs4", "glusterfs", "ceph", "lustre")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `ok` None: a note, neither good nor bad. `remedy` is one line."""

    what: str
    ok: bool | None
    found: str
    remedy: str | None = None


def prove_host(entry: HostEntry, places: Places) -> Iterator[Finding]:
    """Findings as they come. Uses connections of its own, so that a logout is one."""
    client = open_client(entry, places)
    try:
        yield from _prove(entry, client, places)
    finally:
        client.close()


def open_client(entry: HostEntry, places: Places) -> HostClient:
    """With a connection of its own, which nobody else's logout ends."""
    return HostClient(make_transport(entry.config, places, extra=OWN_CONNECTION))


def _prove(entry: HostEntry, client: HostClient, places: Places) -> Iterator[Finding]:
    started = time.monotonic()
    try:
        hello = client.session().hello
        took_s = time.monotonic() - started
        asked_at = time.time()
        proof: Proof = client.call("host.prove", Nothing())
        answered_at = time.time()
        facts: Facts = client.call("host.facts", FactsAsk(sandbox_names(), agents=True, fresh=True))
    except ShunterError as exc:
        yield Finding("reached", False, f"{exc.code}: {exc.text}", exc.hint)
        return
    record_observation(places, answered(entry.name, reached_as(entry.config), hello, facts, now=time.time()))
    what = f"helper {hello.version} started in {took_s:.1f} s, data root {hello.data_root}"
    yield Finding("reached", took_s <= START_LIMIT_S, what, "look at its load, and at what its login shell starts")
    noise = client.session().noise
    if noise:
        text = f"its login shell prints {len(noise)} bytes at each connection, which are skipped"
        yield Finding("noise", None, text, "let its start-up file return early where nobody is at a terminal")
    if proof.processes_left is not None and proof.processes_left < LEAST_PROCESSES:
        text = f"the account may start {proof.processes_left} more, a turn wants {LEAST_PROCESSES} besides its agent's"
        yield Finding("processes", False, text, "end what it runs there, or raise its nproc limit (ulimit -u)")
        return  # whatever else fails would be told with another reason
    yield from _versions(hello, facts)
    yield from file_system(proof, hello.data_root)
    yield _disk(facts)
    yield Finding("memory", None, _memory(facts))
    yield Finding("slots", None, f"{facts.slots_used} of {entry.config.slots} in use")
    if facts.unknown_attempts:
        yield Finding("turns", None, unknown_words(facts))
    yield clock(proof.now, asked_at, answered_at)
    if entry.config.ssh is not None:
        yield _survival(client, proof)
    yield _git(entry, client, hello)
    yield from _agents(facts, proof.user)


def _versions(hello: Hello, facts: Facts) -> Iterator[Finding]:
    python, git = numbers(hello.python), numbers(hello.git)
    yield Finding("python", python >= OLDEST_PYTHON, hello.python, "install Python 3.9 or newer")
    yield Finding("git", git >= OLDEST_GIT, hello.git or "not found", "install git 2.30 or newer there")
    yield Finding(
        "system",
        hello.os.startswith("linux"),
        " ".join(word for word in (facts.system or hello.os, facts.kernel) if word),
        "turns run on Linux only in this version",
    )
    if facts.system == "wsl":
        note = "WSL: Windows ends it when nobody uses it, and turns with it"
        yield Finding("idle", None, note, "set vmIdleTimeout=-1 below [wsl2] in %UserProfile%\\.wslconfig")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def file_system(proof: Proof, data_root: str) -> Iterator[Finding]:
    kind = proof.file_system
    elsewhere = "name a directory on a local disk with `data_root` in the host's entry"
    if kind is not None and (kind in FOREIGN or kind.startswith("fuse")):
        yield Finding("data root", False, f"{data_root} is on {kind} ({proof.mount_point})", elsewhere)
    elif kind in NETWORK and not proof.locks:
        yield Finding("data root", False, f"{data_root} is on {kind}, whose locks do not hold", elsewhere)
    elif proof.locks is False:
        yield Finding("data root", False, f"locks do not hold in {data_root}", elsewhere)
    else:
        yield Finding("data root", True, f"{data_root}, {kind or 'file system not known'}, locks hold")
    noexec = f"mount {proof.mount_point or 'it'} without noexec, or {elsewhere}"
    yield Finding("execution", proof.executes, "a script in the data root", noexec)
    if not proof.home_writable:
        yield Finding("home", None, f"{proof.home} cannot be written; agents may want to")


def _disk(facts: Facts) -> Finding:
    free = facts.disk_free_mb
    if free is None:
        return Finding("disk", None, "not measured")
    remedy = None if free >= GOOD_DISK_MB else f"free at least {GOOD_DISK_MB} MB there"
    does = False if free < LEAST_FREE_MB else None if remedy else True
    return Finding("disk", does, f"{free} MB free", remedy)


def _memory(facts: Facts) -> str:
    if facts.memory_available_mb is None:
        return "not measured"
    total = f" of {facts.memory_total_mb}" if facts.memory_total_mb is not None else ""
    return f"{facts.memory_available_mb}{total} MB available, {facts.memory_reserved_mb} MB reserved"


def clock(theirs: float, asked_at: float, answered_at: float) -> Finding:
    """The answer was made between two moments of ours, so that much is uncertain."""
    off_s = max(asked_at - theirs, theirs - answered_at, 0.0)
    way = "behind" if theirs < asked_at else "ahead of"
    words = "as here" if off_s < 0.5 else f"{off_s:.1f} s {way} this one"
    if off_s <= CLOCK_LIMIT_S:
        return Finding("clock", True, words)
    remedy = "timedatectl set-ntp true, there or here"
    hours = round(off_s / 3600)
    if 1 <= hours <= LARGEST_ZONE_H and abs(off_s - hours * 3600) <= ZONE_SLACK_S:
        words += ", so one of them takes local time for UTC"
        remedy = (
            "where `date -u` is wrong: timedatectl set-local-rtc 0, then set-ntp true; a second system keeps UTC, too"
        )
    return Finding("clock", None, words, remedy)


def _survival(client: HostClient, proof: Proof) -> Finding:
    """A process started as a supervisor is; then the connection ends, and another one looks."""
    try:
        sleeper: Sleeper = client.call("proof.sleep", Nothing())
        client.end_session()
        slept: Slept = client.call("proof.end", sleeper)
    except ShunterError as exc:
        return Finding("logout", False, f"{exc.code}: {exc.text}", exc.hint)
    if slept.state == "alive":
        return Finding("logout", True, "what is started there goes on after it")
    setting = "KillUserProcesses=no in /etc/systemd/logind.conf"
    remedy = f"there, as root: {f'loginctl enable-linger {proof.user}' if proof.lingers is False else setting}"
    return Finding("logout", False, "what is started there ends with the session", remedy)


def _git(entry: HostEntry, client: HostClient, hello: Hello) -> Finding:
    """A commit there and back through the programs that every task uses."""
    if not hello.git:
        return Finding("git both ways", False, "no git", "install git 2.30 or newer there")
    task = new_task_id()
    attempt = new_attempt_id(turn_id(task, 1))
    ref = ProofRef(f"proof-{task}", task)
    lease: Lease | None = None
    try:
        ask = LeaseAsk(attempt, turn_id(task, 1), task, 0, 0, max(1, entry.config.slots) + 1000, None)
        lease = client.call("lease.grant", ask)
        if lease.token is None:
            return Finding("git both ways", None, f"not tried: {lease.busy}")
        with tempfile.TemporaryDirectory(prefix="shunter-proof-") as directory:
            _there_and_back(client, Path(directory), ref, attempt, lease.token)
    except ShunterError as exc:
        return Finding("git both ways", False, f"{exc.code}: {exc.text}", exc.hint)
    finally:
        _clean(client, ref, lease, attempt)
    return Finding("git both ways", True, "a commit was pushed and fetched back")


def _there_and_back(client: HostClient, directory: Path, ref: ProofRef, attempt: str, token: str) -> None:
    ours, back = directory / "ours.git", directory / "back.git"
    for path in (ours, back):
        run_git(["init", "--quiet", "--bare", "--template=", str(path)])
    tree = run_git(["hash-object", "-t", "tree", "-w", "--stdin"], git_dir=str(ours), stdin=b"").text
    author = "shunter <shunter@localhost> 1577836800 +0000"
    commit = f"tree {tree}\nauthor {author}\ncommitter {author}\n\nproof {ref.task_id}\n".encode()
    oid = run_git(["hash-object", "-t", "commit", "-w", "--stdin"], git_dir=str(ours), stdin=commit).text
    ready: MirrorReady = client.call(
        "mirror.prepare", MirrorAsk(attempt, token, ref.task_id, ref.project_id, "sha1", oid)
    )
    transport = client.transport
    push_base(
        Transfer(str(ours), "", (), False),
        transport.mirror_url(ready.path),
        receive_pack_command=transport.pack_command("receive-pack", "--attempt", attempt, "--token", token),
        oid=oid,
        task_id=ref.task_id,
        ssh_command=transport.ssh_command(),
    )
    client.call("proof.publish", ref)
    fetch_result(
        Transfer(str(back), "", (), False),
        transport.mirror_url(ready.path),
        transport.pack_command("upload-pack", "--task", ref.task_id),
        ref.task_id,
        oid,
        ssh_command=transport.ssh_command(),
    )
    assert run_git(["rev-parse", held_result_ref(ref.task_id)], git_dir=str(back)).text == oid


def _clean(client: HostClient, ref: ProofRef, lease: Lease | None, attempt: str) -> None:
    try:
        client.call("proof.remove", ref)
        if lease is not None and lease.token is not None:
            client.call("lease.release", LeaseRef(attempt, lease.token))
    except ShunterError:
        pass  # the lease ends by itself; a mirror of a few hundred bytes stays


def _agents(facts: Facts, user: str) -> Iterator[Finding]:
    """A program that is not there is no fault: a host need not have every agent."""
    boxed: dict[str, list[str]] = {}
    found = facts.agents or {}
    missing = []
    for agent in sorted(name for name in MODULES if name not in COMMANDS):
        for name in sorted(each for each in found if each.partition("@")[0] == agent):
            yield _agent(name, found[name], user)
        if agent not in found:
            missing.append(load(agent).version_argv()[0])
        for each in load(agent).sandbox_programs():
            boxed.setdefault(each, []).append(agent)
    if missing:
        yield Finding("other agents", None, f"not on the PATH of the login shell: {', '.join(missing)}")
    for program, agents in sorted(boxed.items()):
        path = facts.programs.get(program)
        whose = f"{agents[0]} runs without its" if len(agents) == 1 else f"{' and '.join(agents)} run without their"
        remedy = None if path else f"install {program}: without it {whose} sandbox"
        yield Finding(f"program {program}", None, path or "not found", remedy)


def _agent(name: str, facts: AgentFacts, user: str) -> Finding:
    adapter = name.partition("@")[0]
    doubt = doubt_version(adapter, facts.version)
    version = f"{facts.version or 'its version is not known'} at {facts.path}" + (f" ({doubt})" if doubt else "")
    check = load(adapter).auth_check()
    if check is None:
        return Finding(f"agent {name}", None, f"{version}; it does not tell whether it is signed in")
    if facts.signed_in:
        return Finding(f"agent {name}", None, f"{version}, signed in")
    profile = name.partition("@")[2]
    remedy = f"there, as {user}: {check.remedy}" + (f" (with env/{profile}.env)" if profile else "")
    told = "not signed in" if facts.signed_in is False else "gave no answer whether it is signed in"
    return Finding(f"agent {name}", None, f"{version}, {told}", remedy)
