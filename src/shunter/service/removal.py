"""Taking a host out of the pool, and with `--purge` what shunter has there; never the only copy of anything unasked.

What is there the host tells, from its ledger and its directories; what of it is at home the store knows. A data root
may serve other homes of the same account, and other names of this one's pool.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from ..dispatch.hosts import HostEntry, make_transport
from ..fleet.inventory import remove_host_entry
from ..fleet.observations import forget_observation, load_observations
from ..fleet.ssh import DataRoot, SshTransport
from ..model.records import Push, Task, Turn
from ..model.states import UNDELIVERED, PushState, Step, TaskState
from ..policy.outcome import NOT_AT_HOME
from ..wire.errors import ShunterError
from ..wire.messages import Contents, HeldTask, Nothing
from .home import Home
from .twins import holders_of

ALL = 100_000
CONTENTS_LIMIT_S = 600.0  # the host looks into every workspace


def refuse_removal(home: Home, name: str) -> HostEntry:
    """The entry, unless turns run there or wait for it alone. Raises TASK_BUSY with their tasks."""
    entry = home.host(name)
    if not home.was_used:
        return entry
    turns = [turn for turn in home.store.open_turns(waiting=False) if turn.host == name]
    running = sorted({turn.task_id for turn in turns})
    if running:
        hint = f"shunter host drain {name}, then wait: shunter wait {' '.join(running)}"
        unheard = sorted({turn.task_id for turn in turns if turn.uncertain})
        if unheard:
            hint += f"; if it never answers again: shunter cancel {' '.join(unheard)} --force {name}"
        raise ShunterError("TASK_BUSY", f"turns run on {name}: {', '.join(running)}", hint=hint)
    rows = home.store.list_rows(limit=ALL)
    waiting = sorted({row.task_id for row in rows if row.pinned_host == name and row.owner is None})
    if waiting:
        hint = f"shunter cancel {' '.join(waiting)}"
        raise ShunterError("TASK_BUSY", f"turns wait for {name} alone: {', '.join(waiting)}", hint=hint)
    return entry


@dataclass(frozen=True, slots=True)
class Inventory:
    """What stands on a host, and what of it would be gone with the data root although somebody needs it yet."""

    contents: Contents
    foreign: tuple[str, ...]  # tasks that are not this home's
    namesakes: dict[str, tuple[str, ...]]  # tasks of this home under other names of the machine
    needed: dict[str, tuple[str, ...]]  # those of them that are needed: the name is in the pool, or not all is at home
    unfetched: tuple[str, ...]  # of this home, under whichever name, with a result that is not at home
    loose: tuple[str, ...]  # of this home under the very name, with something in the workspace alone
    unpushed: tuple[Push, ...]  # of this home, under whichever name
    shared_with: tuple[str, ...]  # other hosts of the pool that have the same data root


def take_inventory(home: Home, entry: HostEntry) -> Inventory:
    """What `remove --purge` would remove. Raises TASK_BUSY when something runs there, for whichever home."""
    try:
        host_id = entry.client.session().hello.host_id
        found: Contents = entry.client.call("host.contents", Nothing(), limit_s=CONTENTS_LIMIT_S)
    finally:
        entry.client.close()
    if found.running:
        text = f"attempts run on {entry.name}: {', '.join(found.running)}"
        raise ShunterError("TASK_BUSY", text, hint="wait until they are over, or cancel their tasks")
    foreign, unfetched, loose = [], [], []
    namesakes: dict[str, list[str]] = {}
    needed: dict[str, list[str]] = {}
    pool = {host.name for host in home.config.hosts}
    unpushed = unpushed_on(home, entry.name, held=[held.task_id for held in found.tasks])
    owing = {push.task_id for push in unpushed}
    for held in found.tasks:
        task = _own_task(home, held.task_id)
        if task is None:
            foreign.append(held.task_id)
            continue
        turns = home.store.load_turns(task.id)
        is_given_up = task.state == TaskState.CLOSED  # and the host could not remove all of it
        is_alone = not is_given_up and _is_unfetched(held, task, turns)
        unfetched += [task.id] if is_alone else []
        name = task.host or next((turn.host for turn in reversed(turns) if turn.host), None) or entry.name
        if name == entry.name:
            if held.loose and not (is_alone or is_given_up):
                loose.append(task.id)
            continue
        namesakes.setdefault(name, []).append(task.id)
        if (is_alone or held.loose or task.id in owing or name in pool) and not is_given_up:
            needed.setdefault(name, []).append(task.id)
    others = tuple(name for name in holders_of(home, host_id, load_observations(home.places)) if name != entry.name)
    return Inventory(
        found,
        tuple(foreign),
        _frozen(namesakes),
        _frozen(needed),
        tuple(unfetched),
        tuple(loose),
        unpushed,
        others,
    )


def unpushed_on(home: Home, name: str, *, held: Iterable[str] = ()) -> tuple[Push, ...]:
    """What is to go to origin from that host and has not: of tasks that were there last, and of the `held`."""
    if not home.was_used:
        return ()
    states = [state for state in TaskState if state != TaskState.CLOSED]
    there = (task.id for task in home.store.list_tasks(states=states, limit=ALL) if task.host == name)
    pushes = home.store.load_pushes(sorted({*there, *held}))
    return tuple(pushes[task_id] for task_id in sorted(pushes) if pushes[task_id].state in UNDELIVERED)


def words_of(push: Push) -> str:
    why = push.error_code or "being pushed"
    return f"{push.task_id} (branch {push.branch} is not on {push.url} yet: {why})"


def give_up_pushes(home: Home, pushes: Iterable[Push], *, actor: str) -> None:
    """Nothing can push them any more. What came of one meanwhile stays as it is."""
    for told in pushes:
        push: Push | None = told
        while push is not None and push.state in UNDELIVERED:
            code, text = push.error_code, push.error_text
            home.store.record_push(
                push, PushState.DROPPED, actor=actor, now=time.time(), error_code=code, error_text=text
            )
            push = home.store.load_push(push.task_id)


def _frozen(found: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(ids) for name, ids in found.items()}


def _own_task(home: Home, task_id: str) -> Task | None:
    try:
        return home.store.load_task(task_id) if home.was_used else None
    except ShunterError as exc:
        if exc.code != "TASK_UNKNOWN":
            raise
        return None


def _is_unfetched(held: HeldTask, task: Task, turns: list[Turn]) -> bool:
    """Whether the host has a result, or will have one to tell of, that home has not; by the word of either."""
    unsettled = any(turn.step not in (Step.WAITING, Step.SETTLED) for turn in turns)
    told = bool(turns) and turns[-1].error_code in NOT_AT_HOME
    newer = held.head_oid is not None and held.head_oid != (task.fetched_oid or task.base_oid)
    return unsettled or told or newer


def refuse_purge(entry: HostEntry, found: Inventory) -> None:
    """RESULT_UNDELIVERED while something is there that this home does not have, or that others of the pool use."""
    told = []
    if found.foreign:
        told.append(f"{' '.join(found.foreign)} (another home's)")
    told += [f"{' '.join(ids)} (this home's, as {name})" for name, ids in found.needed.items()]
    told_of = {task_id for ids in found.needed.values() for task_id in ids}
    unfetched = [task_id for task_id in found.unfetched if task_id not in told_of]
    if unfetched:
        told.append(f"{' '.join(unfetched)} (not fetched)")
    if found.loose:
        told.append(f"{' '.join(found.loose)} (something of it in the workspace alone)")
    told += [words_of(push) for push in found.unpushed if push.task_id not in told_of]
    told += [f"what {name} runs with (the same machine and data root)" for name in found.shared_with]
    if not told:
        return
    fetch = f"shunter fetch {found.unfetched[0]}, or " if found.unfetched else ""
    publish = f"shunter publish {found.unpushed[0].task_id} --retry, or " if found.unpushed else ""
    hint = f"{fetch}{publish}leave --purge out, or add --discard"
    text = f"what is on {entry.name} is needed yet: {'; '.join(told)}"
    raise ShunterError("RESULT_UNDELIVERED", text, hint=hint)


def remove_host(home: Home, name: str) -> bool:
    """Take the entry out of the configuration. False when only the built-in `local` had that name."""
    removed = remove_host_entry(home.places, name)
    forget_observation(home.places, name)
    if home.was_used:
        home.store.enable_host(name, actor="removal", now=time.time())
    return removed


def find_remains(home: Home, entry: HostEntry) -> DataRoot | None:
    """None while something is there that has to be looked at first; else that data root: gone, or half removed.

    Only for hosts reached by ssh; raises USAGE for others.
    """
    seen = _ssh_of(home, entry).look()
    return None if seen.is_used else seen


def purge_host(home: Home, entry: HostEntry) -> str:
    """Remove all that shunter has there; what was done, in words. Only for hosts reached by ssh.

    Raises INTERRUPTED at Ctrl-C, which the host does not hear.
    """
    try:
        done = _ssh_of(home, entry).purge()
    except KeyboardInterrupt:
        text = f"what was begun on {entry.name} goes on there, and its entry stays until it is known to be over"
        raise ShunterError("INTERRUPTED", text, hint="the same command again finishes it") from None
    if not done.found:
        return f"nothing of shunter's was in {done.data_root}"
    if done.has_others:
        return f"removed what shunter had in {done.data_root}; other files there stay"
    if done.stays is not None:
        return f"removed all in {done.data_root}; the empty directory stays: {done.stays}"
    return f"removed {done.data_root}"


def _ssh_of(home: Home, entry: HostEntry) -> SshTransport:
    transport = make_transport(entry.config, home.places)
    if not isinstance(transport, SshTransport):
        raise ShunterError("USAGE", "--purge is for hosts reached by ssh", hint=f"rm -rf {home.places.host_data_root}")
    return transport
