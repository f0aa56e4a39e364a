"""Taking hosts into the pool and looking after them: add, set up, check, drain, enable. Each may be repeated.

`add` reaches the machine, writes its entry, then sets it up; a second run finds what the first one did and goes on. A
host whose proof failed is held back by a drain in the name of set-up, which the next proof that holds takes away.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ..dispatch.hosts import NOT_REACHED, SETUP, HostEntry, make_transport, signed_out_of
from ..dispatch.wake import tell_answers
from ..fleet.client import HostClient
from ..fleet.config import HostConfig, load_config
from ..fleet.forms import FormError, ssh_target
from ..fleet.forms import tags as known_tags
from ..fleet.inventory import add_host_entry, update_host_entry
from ..fleet.ssh import ACCEPT_NEW_KEY, DataRoot, SshTransport
from ..wire.errors import ShunterError
from ..wire.ids import is_host_name
from ..wire.messages import Facts, FactsAsk, Tidied, TidyAsk
from .home import Home
from .originproof import prove_origin
from .pool import acquaint, gone_root
from .proof import Finding, prove_host
from .stops import find_account_stops
from .twins import holders_of, known_twins, twin_remedy

FORMER_HELPERS_KEPT_S = 7 * 86400.0

Tell = Callable[[Finding], None]


@dataclass(frozen=True, slots=True)
class AddAsk:
    """What the command line gave; None or empty: not given."""

    target: str
    name: str | None = None
    slots: int | None = None
    memory_mb: int | None = None
    reserve_mb: int | None = None
    tags: tuple[str, ...] = ()
    data_root: str | None = None
    python: str | None = None
    ssh_command: tuple[str, ...] = ()
    accept_new_key: bool = False

    def values(self) -> dict[str, Any]:
        """The keys of the entry besides its name and way, in the order of the documentation."""
        given = {
            "ssh_command": list(self.ssh_command),
            "slots": self.slots,
            "memory_mb": self.memory_mb,
            "reserve_mb": self.reserve_mb,
            "tags": list(self.tags),
            "data_root": self.data_root,
            "python": self.python,
        }
        return {key: value for key, value in given.items() if value not in (None, [])}


def add_host(home: Home, ask: AddAsk, tell: Tell) -> HostConfig:
    """The whole onboarding. Raises what keeps it from being reached; what is missing there comes as findings."""
    try:
        ssh_target(ask.target)
    except FormError as exc:
        raise ShunterError("USAGE", f"{ask.target!r}: expected {exc}") from exc
    try:
        known_tags(list(ask.tags))
    except FormError as exc:
        raise ShunterError("USAGE", f"--tag {' '.join(ask.tags)}: expected {exc}") from exc
    entry = _existing(home, ask)
    wanted = _wanted(ask, entry)
    transport = make_transport(wanted, home.places, extra=ACCEPT_NEW_KEY if ask.accept_new_key else ())
    assert isinstance(transport, SshTransport)
    transport.reach()
    tell(Finding("connection", True, f"ssh {ask.target} works"))
    if entry is None:
        _refuse_known_machine(home, ask, transport)
        # From the moment that it is in the pool until the proof holds.
        home.store.drain_host(wanted.name, actor=SETUP, reason="it was never proved", now=time.time())
    try:
        _write_entry(home, ask, entry, wanted, tell)
    except BaseException:
        if entry is None:
            home.store.enable_host(wanted.name, actor=SETUP, now=time.time())
        raise
    home.config = load_config(home.places)
    set_up_host(home, wanted.name, tell)
    return wanted


def _refuse_known_machine(home: Home, ask: AddAsk, transport: SshTransport) -> None:
    """HOST_DUPLICATE when the pool has that machine and data root under another name. Nothing is made there for it."""
    root = _look(transport)
    names = holders_of(home, root.host_id, acquaint(home)) if root is not None and root.host_id is not None else []
    if root is not None and names:
        text = f"{ask.target} is the same machine and data root ({root.path}) as {names[0]}, which is in the pool"
        hint = f"--data-root for a second one there; on a copy of its disk, first: rm {root.path}/host_id"
        raise ShunterError("HOST_DUPLICATE", text, hint=hint)


def _look(transport: SshTransport) -> DataRoot | None:
    """None: it could not be looked at, which set-up tells better."""
    try:
        return transport.look()
    except ShunterError:
        return None


def _existing(home: Home, ask: AddAsk) -> HostConfig | None:
    """The entry that this run goes on with. Raises USAGE when the name means another machine."""
    if ask.name is not None and not is_host_name(ask.name):
        raise ShunterError("USAGE", f"--name {ask.name!r}: expected at most 63 lower-case letters, digits, . _ -")
    for host in home.config.hosts:
        if host.ssh == ask.target and (ask.name is None or ask.name == host.name):
            return host
    name = ask.name or name_from(ask.target)
    for host in home.config.hosts:
        if host.name == name and _is_written(home, name):
            where = f"reached by ssh as {host.ssh}" if host.ssh else "this machine"
            raise ShunterError("USAGE", f"the name {name} is taken: {where}", hint="give another one with --name")
    return None


def _is_written(home: Home, name: str) -> bool:
    """Whether the file has an entry of that name; `local` is in the pool without one."""
    from ..fleet.config import read_toml

    return (
        any(each.get("name") == name for each in read_toml(home.places.config_file).get("hosts", [])) or name == "local"
    )


def name_from(target: str) -> str:
    """The machine's first label, as a host name. Raises USAGE when nothing is left of it."""
    machine = target.rpartition("@")[2].lower()
    label = machine if re.fullmatch(r"[0-9.]+", machine) else machine.split(".")[0]
    name = re.sub(r"[^a-z0-9._-]+", "-", label).strip("-._")[:63]
    if not is_host_name(name):
        raise ShunterError("USAGE", f"no name can be made of {target!r}", hint="give one with --name")
    return name


def _wanted(ask: AddAsk, entry: HostConfig | None) -> HostConfig:
    values = ask.values()
    for key in ("ssh_command", "tags"):
        if key in values:
            values[key] = tuple(values[key])
    if entry is None:
        return HostConfig(ask.name or name_from(ask.target), ssh=ask.target, **values)
    kept = {key: getattr(entry, key) for key in HostConfig.__slots__}
    return HostConfig(**{**kept, **values})


def _write_entry(home: Home, ask: AddAsk, entry: HostConfig | None, wanted: HostConfig, tell: Tell) -> None:
    file = home.places.config_file
    if entry is None:
        values = {"name": wanted.name, "ssh": ask.target, **ask.values()}
        if add_host_entry(home.places, values):
            tell(
                Finding("configuration", None, f"{file} had no hosts: `local` was written too, so it stays in the pool")
            )
        tell(Finding("configuration", True, f"[[hosts]] {wanted.name} is in {file}"))
        return
    changed = {key: value for key, value in ask.values().items() if _plain(getattr(entry, key)) != value}
    if changed:
        update_host_entry(home.places, entry.name, changed)
        tell(Finding("configuration", True, f"[[hosts]] {entry.name} in {file}: {', '.join(changed)} changed"))
    else:
        tell(Finding("configuration", True, f"[[hosts]] {entry.name} was in {file} before"))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def set_up_host(
    home: Home, name: str, tell: Tell, *, accept_new_key: bool = False, new_data_root: bool = False
) -> bool:
    """Copy the helper, make the data root, prove the host. True when nothing is missing.

    `new_data_root`: also where the former one is gone and turns of this home are open in it.
    """
    entry = home.host(name)
    transport = make_transport(entry.config, home.places, extra=ACCEPT_NEW_KEY if accept_new_key else ())
    fine = True

    def note(finding: Finding) -> None:
        nonlocal fine
        fine = fine and finding.ok is not False
        tell(finding)

    if isinstance(transport, SshTransport):
        try:
            transport.reach()
            gone = None if new_data_root else _gone_with_turns(home, name, transport)
            if gone is not None:
                tell(gone)
                return False
            root = transport.install()
        except ShunterError as exc:
            tell(Finding("helper", False, f"{exc.code}: {exc.text}", exc.hint))
            # Not reached is no finding about the host, and nobody sends it turns while it is not.
            return False if exc.code in NOT_REACHED else _judge(home, name, ["helper"])
        note(Finding("helper", True, f"{transport.helper.name} is in {root}/bin"))
        _tidy(HostClient(transport), note)
    failed = []
    for finding in _prove(home, entry):
        note(finding)
        if finding.ok is False:
            failed.append(finding.what)
    return _judge(home, name, failed) and fine


def _gone_with_turns(home: Home, name: str, transport: SshTransport) -> Finding | None:
    """A data root with open turns of this home that is not there: a new one beside it would have them lost."""
    turns = [turn for turn in home.store.open_turns(waiting=False) if turn.host == name] if home.was_used else []
    root = _look(transport) if turns else None
    if root is None or root.host_id is not None:
        return None
    words, remedy = gone_root(name, root.path, open_turns=len(turns))
    return Finding("data root", False, words, remedy)


def _prove(home: Home, entry: HostEntry) -> Iterator[Finding]:
    """The host by itself, then beside the others of the pool."""
    was_reached = True
    for finding in prove_host(entry, home.places):
        was_reached = was_reached and (finding.what, finding.ok) != ("reached", False)
        yield finding
    if was_reached:
        tell_answers(home.places, entry.name)
        acquaint(home)
        first = known_twins(home).get(entry.name)
        if first is not None:
            words = f"the same one, with the same data root, as {first}"
            yield Finding("machine", False, words, twin_remedy(entry.name, first))


def _tidy(client: HostClient, note: Tell) -> None:
    try:
        tidied: Tidied = client.call("host.tidy", TidyAsk(FORMER_HELPERS_KEPT_S))
    except ShunterError:
        return  # the proof comes next and tells it better
    finally:
        client.close()
    if tidied.removed:
        note(Finding("former helpers", None, f"{len(tidied.removed)} removed, nothing runs from them"))


def _judge(home: Home, name: str, failed: list[str]) -> bool:
    """A host that cannot run a turn takes none until a proof holds; an operator's own drain is not touched."""
    now = time.time()
    is_ours = any(drain.host == name and drain.actor == SETUP for drain in home.store.list_drains())
    if failed:
        if is_ours:
            home.store.enable_host(name, actor=SETUP, now=now)  # the first word stands, and this one is newer
        home.store.drain_host(name, actor=SETUP, reason=f"missing: {', '.join(failed)}", now=now)
        return False
    if is_ours:
        enable_host(home, name, actor=SETUP)
    return True


def check_host(home: Home, name: str, tell: Tell, *, origin: str | None = None) -> bool:
    """The proof again. True when nothing is missing; then stopped accounts get tasks again.

    `origin`: the address of a repository to fetch from and push to; otherwise that of the present checkout, if the host
    is declared to work with it, and then a push is only rehearsed.
    """
    fine = True
    entry = home.host(name)
    for finding in chain(_prove(home, entry), prove_origin(entry, home.places, origin)):
        fine = fine and finding.ok is not False
        tell(finding)
    if fine:
        for finding in let_accounts_go(home, entry):
            tell(finding)
    return fine


def let_accounts_go(home: Home, entry: HostEntry) -> Iterator[Finding]:
    """A host that somebody found in order: accounts that were stopped get tasks again, unless nobody is signed in."""
    stops = find_account_stops(home, entry.name, [])
    if not (stops.stopped or stops.tried):
        return
    facts: Facts = entry.client.call("host.facts", FactsAsk(agents=True))
    for account in sorted({**stops.stopped, **stops.tried}):
        name, at, profile = account.partition("@")
        configured = home.config.agents.get(name)
        asked = configured is None or not configured.command  # about a command of one's own nobody can be asked
        if asked and f"{configured.adapter if configured else name}{at}{profile}" in signed_out_of(facts):
            yield Finding(f"account {account}", None, "stopped: nobody is signed in")
            continue
        home.store.clear_account(entry.name, account, actor="user", now=time.time())
        yield Finding(f"account {account}", None, "was stopped after failures and gets tasks again")
    _wake(home)


def _wake(home: Home) -> None:
    if home.store.has_open_turns():
        home.wake()


def drain_host(home: Home, name: str, *, actor: str, reason: str | None) -> bool:
    """It takes no new turns; what runs goes on. False when that was so before."""
    home.host(name)
    return home.store.drain_host(name, actor=actor, reason=reason, now=time.time())


def enable_host(home: Home, name: str, *, actor: str) -> bool:
    """It takes turns again, with every account that was stopped there. False when it did."""
    entry = home.host(name)
    done = home.store.enable_host(name, actor=actor, now=time.time())
    for account in home.store.list_accounts(name):
        home.store.clear_account(name, account, actor=actor, now=time.time())
    if not entry.config.enabled:
        hint = f"take `enabled = false` out of its entry in {home.places.config_file}"
        raise ShunterError("CONFIG_INVALID", f"host {name} is switched off in the configuration", hint=hint)
    _wake(home)
    return done
