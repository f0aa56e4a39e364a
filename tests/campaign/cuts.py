"""Connections, links, power and the dispatcher are cut at random moments while turns run on three hosts.

The plan (what is cut, where, how long, which turns run) follows from the seed; the moments follow from the machine. As
root the hosts are namespaces; otherwise they are accounts behind `sshd -i`, whose links and power cannot be cut.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from e2e_world import kill
from netns_lab import NetnsLab, why_not
from pool_world import Pool
from ssh_lab import Lab, LabHost

HOSTS = ("one", "two", "three")
SLOTS = 2
OPEN_TURNS = 8  # six run, two wait
SETTLE_LIMIT_S = 240.0
WAIT_FOR_TURNS_S = 8.0
LONG_CUT_S = 33.0  # longer than it takes to notice a half-open link
POWER = "power cut"
DISPATCHER = "dispatcher killed"


@dataclass
class Cut:
    """What is done to a host, and what undoes it after a while, if it does not pass by itself."""

    act: Callable[[LabHost], object]
    undo: Callable[[LabHost], object] | None = None
    times: int = 0
    hit: set[str] = field(default_factory=set)  # turns under way there


def stop_server(host) -> None:
    host.stop_sshd()
    host.kill_master()


def vanish(host) -> None:
    host.vanish()
    host.kill_master()


def kinds_here() -> tuple[dict[str, Cut], str | None]:
    """What can be cut on this machine, and why not more."""
    everywhere = {"master killed": Cut(lambda host: host.kill_master()), DISPATCHER: Cut(lambda host: None)}
    reason = why_not()
    if reason is not None:
        return {**everywhere, "server gone": Cut(vanish, lambda host: host.come_back())}, reason
    return {
        **everywhere,
        "session's sshd killed": Cut(lambda host: host.kill_sessions()),
        "sshd stands still": Cut(lambda host: host.freeze_sessions(), lambda host: host.thaw()),
        "link down": Cut(lambda host: host.link_down(), lambda host: host.link_up()),
        "packets dropped": Cut(lambda host: host.drop_packets(), lambda host: host.undrop_packets()),
        "sshd stopped": Cut(stop_server, lambda host: host.start_sshd()),
        POWER: Cut(lambda host: host.cut_power(), lambda host: host.boot()),
    }, None


def run(root: Path, *, rounds: int, seed: int, say: Callable[[str], None]) -> list[str]:
    """What was broken, in words; the table goes to `say`."""
    kinds, reason = kinds_here()
    say(f"{rounds} cuts, seed {seed}")
    if reason is not None:
        say(f"left out: links, half-open connections and power; {reason}")
    pool = Pool(root, Lab if reason else NetnsLab)
    try:
        campaign = Campaign(pool, kinds, rounds=rounds, seed=seed, say=say)
        campaign.begin()
        campaign.cut_all()
        campaign.settle()
        return campaign.judge()
    finally:
        pool.close()


class Campaign:
    def __init__(
        self, pool: Pool, kinds: dict[str, Cut], *, rounds: int, seed: int, say: Callable[[str], None]
    ) -> None:
        self.pool, self.world, self.kinds, self.rounds, self.say = pool, pool.world, kinds, rounds, say
        self.random = random.Random(seed)
        self.marks = pool.shared / "marks"
        self.healing: dict[str, tuple[float, Cut]] = {}  # host: when its cut is undone
        self.broken: list[str] = []
        self.began = time.monotonic()

    def begin(self) -> None:
        self.marks.mkdir()
        self.marks.chmod(0o777)
        for name in HOSTS:
            self.pool.add(self.pool.a_host(name), "--slots", str(SLOTS))
        self.pool.without_local()
        self.began = time.monotonic()

    # --- while things fail ------------------------------------------------------------------------------------------

    def cut_all(self) -> None:
        for kind, place, pause_s, lasts_s in self.plan():
            self.keep_turns_running()
            self.wait(pause_s)
            self.cut(kind, self.choose_host(place), lasts_s)
        while self.healing:
            self.wait(0.1)

    def plan(self) -> list[tuple[str, str, float, float]]:
        """Every kind about equally often; a tenth of a long run's cuts lasts until a half-open link is noticed."""
        chance, found = self.random, []
        for number in range(self.rounds):
            if number % len(self.kinds) == 0:
                bag = chance.sample(sorted(self.kinds), len(self.kinds))
            is_long = chance.random() < 0.1 and self.rounds >= 50
            lasts_s = LONG_CUT_S if is_long else chance.uniform(0.2, 5.0)
            found.append((bag.pop(), chance.choice(HOSTS), chance.uniform(0.0, 1.5), lasts_s))
        return found

    def cut(self, kind: str, host: LabHost, lasts_s: float) -> None:
        cut = self.kinds[kind]
        cut.times += 1
        here = None if kind == DISPATCHER else host.name
        hit = self.under_way(here)
        if kind == DISPATCHER:
            for pid in self.world.dispatcher_pids():
                kill(pid)
        else:
            cut.act(host)
        hit |= self.under_way(here)  # what came to the host between the two
        cut.hit |= hit
        lasts = f" for {lasts_s:.1f} s" if cut.undo else ""
        self.say(f"{time.monotonic() - self.began:7.1f} s  {here or 'home':<6} {kind}{lasts}, {len(hit)} turns")
        if cut.undo:
            self.healing[host.name] = (time.monotonic() + lasts_s, cut)

    def choose_host(self, place: str) -> LabHost:
        """One with nothing wrong and with turns under way, which is waited for a while; that of the plan if it can."""
        give_up = time.monotonic() + WAIT_FOR_TURNS_S
        while True:
            free = sorted((name for name in HOSTS if name not in self.healing), key=lambda name: name != place)
            busy = [name for name in free if self.under_way(name)]
            if busy or (free and time.monotonic() >= give_up):
                return self.pool.lab.hosts[(busy or free)[0]]
            self.wait(0.1)

    def wait(self, pause_s: float) -> None:
        """And undo meanwhile what has lasted long enough."""
        until = time.monotonic() + pause_s
        while True:
            for name, (at, cut) in list(self.healing.items()):
                if time.monotonic() >= at:
                    del self.healing[name]
                    assert cut.undo is not None
                    cut.undo(self.pool.lab.hosts[name])
            if time.monotonic() >= until:
                return
            time.sleep(0.02)

    def keep_turns_running(self) -> None:
        (unsettled,) = (
            self.world.store("SELECT count(*) FROM turns WHERE step <> 'settled'")[0] if self.exists() else (0,)
        )
        for _ in range(min(2, OPEN_TURNS - unsettled) if unsettled >= SLOTS * 2 else OPEN_TURNS - unsettled):
            self.world.submit(self.agent())
        if unsettled and not self.world.dispatcher_pids():
            self.world.run("reconcile")

    def exists(self) -> bool:
        return (self.world.state / "store.db").exists()

    def agent(self) -> str:
        """Tells of its launch outside of its workspace, works a while, leaves a commit and sometimes a process."""
        chance = self.random
        left = "(setsid sleep 600 > /dev/null 2>&1 &); " if chance.random() < 0.25 else ""
        return (
            f'echo "$SHUNTER_ATTEMPT" >> {self.marks}/launches-$(id -un); {left}'
            f"seq {chance.randrange(1, 2000)}; sleep {chance.choice((0.05, 0.3, 1, 2, 4))}; "
            'echo "$SHUNTER_TASK" > result.txt; git add result.txt; git commit -qm result'
        )

    def under_way(self, host: str | None) -> set[str]:
        where = "step NOT IN ('waiting', 'settled')" + (f" AND host = '{host}'" if host else "")
        return {turn for (turn,) in self.world.store(f"SELECT id FROM turns WHERE {where}")} if self.exists() else set()

    # --- afterwards -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Until no turn is open and every host answers, or it took too long: then `judge` finds what is left."""
        self.world.run("reconcile")
        self.until(self.all_settled, limit_s=SETTLE_LIMIT_S, what="some turns are still open")
        self.until(self.all_answer, limit_s=100.0, what="some hosts do not answer")
        self.say(f"{time.monotonic() - self.began:7.1f} s  settled")
        for pid in self.world.dispatcher_pids():
            kill(pid, 15)
        for host in self.pool.lab.hosts.values():
            host.kill_master()
        self.until(
            lambda: not any(self.left_on(host) for host in self.pool.lab.hosts.values()), limit_s=40.0, what=None
        )

    def until(self, check: Callable[[], bool], *, limit_s: float, what: str | None) -> None:
        give_up = time.monotonic() + limit_s
        while not check():
            if time.monotonic() >= give_up:
                if what is not None:
                    self.broken.append(f"{what} after {limit_s:.0f} s")
                return
            time.sleep(0.3)

    def all_settled(self) -> bool:
        if not self.world.store("SELECT 1 FROM turns WHERE step <> 'settled'"):
            return True
        if not self.world.dispatcher_pids():
            self.world.run("reconcile")
        return False

    def all_answer(self) -> bool:
        shown = self.pool.hosts("--refresh")
        return all(shown[name]["state"] == "ready" for name in HOSTS)

    def left_on(self, host: LabHost) -> list[int]:
        """Processes that turns or sessions left; an account of its own has no others."""
        if host.is_own_user:
            return host.processes()
        tag = os.fsencode(self.pool.root_of(host))
        return [pid for pid in host.processes() if any(tag in read_proc(pid, name) for name in ("cmdline", "environ"))]

    def launches(self) -> Counter[str]:
        lines = [line for path in self.marks.glob("launches-*") for line in path.read_text().split()]
        return Counter(attempt.rpartition("-")[0] for attempt in lines)

    def judge(self) -> list[str]:
        launches = self.launches()
        columns = "id, task_id, host, state, step, uncertain, error_code, error_text, outcome"
        turns = self.world.store(f"SELECT {columns} FROM turns")
        cut_off = self.kinds[POWER].hit if POWER in self.kinds else set()
        facts: dict[str, set[str]] = {name: set() for name in ("duplicated", "unknown", "lost", "fetched")}
        for turn, task, host, state, step, uncertain, code, text, outcome in turns:
            told = f"turn {turn} on {host} ({state}, {launches[turn]} launches)"
            if launches[turn] > 1:
                facts["duplicated"].add(turn)
                self.broken.append(f"{told}: launched more than once")
            if step != "settled" or uncertain:
                facts["unknown"].add(turn)
                self.broken.append(f"{told}: still {step}, uncertain {uncertain}: {self.history(turn)}")
                continue
            publication = (json.loads(outcome) if outcome else {}).get("publication") or {}
            if state == "lost":
                facts["lost"].add(turn)
            if publication.get("commits") and self.is_home(task, host, publication["head_oid"]):
                facts["fetched"].add(turn)
            honest = state == "succeeded" or (state == "lost" and turn in cut_off)
            if not honest or code not in (None, "TURN_LOST"):
                self.broken.append(f"{told}: {code}: {text}: {self.history(turn)}")
            elif publication.get("commits") and turn not in facts["fetched"]:
                self.broken.append(f"{told}: its result is not at home")
            elif state == "succeeded" and not (launches[turn] == 1 and self.has_result(task, host)):
                self.broken.append(f"{told}: its result is not what the agent made")
        left = {host.name: self.left_on(host) for host in self.pool.lab.hosts.values()}
        for name, pids in left.items():
            host = self.pool.lab.hosts[name]
            held = self.pool.ledger(host, "SELECT attempt_id FROM lease WHERE used = 1")
            going = self.pool.ledger(host, "SELECT attempt_id FROM attempt WHERE state = 'accepted'")
            self.broken += [f"host {name}: {what} left: {found}" for what, found in self.words(pids, held, going)]
            if self.pool.ledger(host, "PRAGMA integrity_check") != [("ok",)]:
                self.broken.append(f"host {name}: its ledger is damaged")
        self.tell(facts, launches, len(turns), sum(len(pids) for pids in left.values()))
        return self.broken

    def words(self, pids: list[int], held: list[tuple], going: list[tuple]) -> list[tuple[str, object]]:
        commands = [read_proc(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")[:200] for pid in pids]
        return [(w, f) for w, f in (("processes", commands), ("leases", held), ("attempts", going)) if f]

    def is_home(self, task: str, host: str, oid: str) -> bool:
        ref = f"refs/remotes/shunter/{host}/task/{task}"
        return self.world.git("for-each-ref", "--format=%(objectname)", ref) == oid

    def has_result(self, task: str, host: str) -> bool:
        return self.world.git("show", f"shunter/{host}/task/{task}:result.txt") == task

    def history(self, turn: str) -> str:
        columns = "at, actor, kind, from_state, to_state, reason"
        rows = self.world.store(f"SELECT {columns} FROM events WHERE turn_id = '{turn}' ORDER BY at")
        return "".join(
            f"\n          {time.strftime('%H:%M:%S', time.localtime(at))} {' '.join(str(word) for word in rest)}"
            for at, *rest in rows[-20:]
        )

    def tell(self, facts: dict[str, set[str]], launches: Counter[str], turns: int, left: int) -> None:
        names = ("kind of cut", "times", "turns hit", "launches", *facts, "processes left")
        rows = []
        for kind, cut in sorted(self.kinds.items()):
            counts = [len(found & cut.hit) for found in facts.values()]
            rows.append((kind, cut.times, len(cut.hit), sum(launches[turn] for turn in cut.hit), *counts, ""))
        everything = [len(found) for found in facts.values()]
        rows.append(("all turns", self.rounds, turns, sum(launches.values()), *everything, left))
        widths = [max(len(str(cell)) for cell in column) for column in zip(names, *rows, strict=True)]
        for first, *cells in (names, *rows):
            numbers = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
            self.say("  ".join((f"{first:<{widths[0]}}", *numbers)))


def read_proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
