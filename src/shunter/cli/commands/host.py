"""`shunter host`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

import click

from ...dispatch.hosts import HostEntry
from ...fleet.ssh import DataRoot
from ...model.records import Push
from ...service.actions import undelivered_on
from ...service.home import Home
from ...service.onboard import AddAsk, add_host, check_host, drain_host, enable_host, set_up_host
from ...service.proof import Finding
from ...service.removal import (
    Inventory,
    find_remains,
    give_up_pushes,
    purge_host,
    refuse_purge,
    refuse_removal,
    remove_host,
    take_inventory,
    unpushed_on,
    words_of,
)
from ...wire.errors import ShunterError
from ..entry import IGNORE, take_interrupts
from ..output import emit, json_option, say
from ..text import coloured, count, visible

MARKS = {True: ("ok", "green"), False: ("FAILED", "red"), None: ("note", "dim")}
MISSING = 69


@click.group("host")
def command() -> None:
    """Take hosts into the pool, prove them, hold them back, take them out.

    `shunter hosts` shows the pool.
    """


def teller(as_json: bool) -> tuple[list[Finding], Callable[[Finding], None]]:
    """All findings so far, and what is called with each as it comes."""
    found: list[Finding] = []

    def tell(finding: Finding) -> None:
        found.append(finding)
        if as_json:
            return  # all of them are one record, at the end
        word, colour = MARKS[finding.ok]
        say(f"{coloured(f'{word:<7}', colour)} {finding.what:<15} {visible(finding.found)}")
        if finding.remedy and finding.ok is not True:
            say(f"        -> {visible(finding.remedy)}")
        sys.stdout.flush()

    return found, tell


@command.command("add")
@click.argument("target", metavar="USER@MACHINE")
@click.option("--name", help="In the pool; otherwise the machine's.")
@click.option("--slots", type=click.IntRange(1, 1000), help="Turns at the same time; otherwise 1.")
@click.option("--memory-mb", type=click.IntRange(64), help="Budget for reservations.")
@click.option("--reserve-mb", type=click.IntRange(0), help="Instead: leave this much of its memory alone.")
@click.option("--tag", "tags", multiple=True, help="A capability that tasks may ask for; may be repeated.")
@click.option("--data-root", help="Directory there; otherwise ~/.local/share/shunter.")
@click.option("--python", help="That runs the helper there; otherwise python3.")
@click.option("--ssh-command", help="Program and leading options; otherwise ssh.")
@click.option("--accept-new-key", is_flag=True, help="Trust its host key, when no other is known.")
@json_option
@click.pass_context
def add(
    ctx: click.Context,
    target: str,
    name: str | None,
    slots: int | None,
    memory_mb: int | None,
    reserve_mb: int | None,
    tags: tuple[str, ...],
    data_root: str | None,
    python: str | None,
    ssh_command: str | None,
    accept_new_key: bool,
    as_json: bool,
) -> None:
    """Take a machine into the pool: reach it, write its entry, install the helper, prove it.

    Run it again after mending what is missing: it goes on where it stopped. USER@MACHINE may be a name of
    ~/.ssh/config; ports, jump hosts, tunnels and keys belong there. Exit status 69 when something is missing.
    """
    try:
        command_words = tuple(shlex.split(ssh_command)) if ssh_command else ()
    except ValueError as exc:
        hint = "write it as you would in a shell, with its quotes closed"
        raise ShunterError("USAGE", f"--ssh-command {ssh_command!r}: {exc}", hint=hint) from exc
    ask = AddAsk(
        target,
        name,
        slots,
        memory_mb,
        reserve_mb,
        tags,
        data_root,
        python,
        command_words,
        accept_new_key=accept_new_key,
    )
    found, tell = teller(as_json)
    host = add_host(Home(), ask, tell)
    _end(ctx, found, host.name, again=f"shunter host setup {host.name}", as_json=as_json)


@command.command("setup")
@click.argument("name")
@click.option("--accept-new-key", is_flag=True, help="Trust its host key, when no other is known.")
@click.option("--new-data-root", is_flag=True, help="Although the former one is gone with turns that are open in it.")
@json_option
@click.pass_context
def setup(ctx: click.Context, name: str, accept_new_key: bool, new_data_root: bool, as_json: bool) -> None:
    """Install the helper of this version on a host and prove the host.

    Needed once after each change of shunter's version. Harmless while turns run: they keep the helper they have.
    """
    found, tell = teller(as_json)
    set_up_host(Home(), name, tell, accept_new_key=accept_new_key, new_data_root=new_data_root)
    _end(ctx, found, name, again=f"shunter host setup {name}", as_json=as_json)


@command.command("check")
@click.argument("name", default="local")
@click.option("--origin", metavar="URL", help="Also fetch from this repository and push a ref there, with its account.")
@json_option
@click.pass_context
def check(ctx: click.Context, name: str, origin: str | None, as_json: bool) -> None:
    """Look whether a host can do its work: helper, versions, data root, git, room, programs of agents.

    What it makes there is removed again: with --origin a ref below refs/shunter/proof/ is pushed and deleted. Inside a
    checkout whose origin is on a machine that the host is declared for (`origin:MACHINE` in its tags), a push there is
    rehearsed. With nothing missing, accounts that failures had stopped get tasks again where their agent is signed in.
    Exit status 69 when something is missing that every turn needs.
    """
    found, tell = teller(as_json)
    check_host(Home(), name, tell, origin=origin)
    _end(ctx, found, name, again=None, as_json=as_json)


def _end(ctx: click.Context, found: list[Finding], name: str, *, again: str | None, as_json: bool) -> None:
    failed = sum(1 for finding in found if finding.ok is False)
    if as_json:
        emit(found)
    if not as_json and again is not None:
        if failed:
            things = "one thing is" if failed == 1 else f"{failed} things are"
            say(f"{name}: {things} missing; it takes no turns until that is mended. Then: {again}")
        else:
            say(f"{name} is ready: shunter submit --host {name} …")
    ctx.exit(MISSING if failed else 0)


@command.command("drain")
@click.argument("name")
@click.option("--reason", help="For whoever wonders; shown in `shunter hosts`.")
@json_option
def drain(name: str, reason: str | None, as_json: bool) -> None:
    """Give a host no new turns; what runs there goes on."""
    done = drain_host(Home(), name, actor="user", reason=reason)
    _tell_change(name, "drained", "takes no new turns", changed=done, as_json=as_json)


@command.command("enable")
@click.argument("name")
@json_option
def enable(name: str, as_json: bool) -> None:
    """Let a drained host take turns again, with every account that failures had stopped there."""
    done = enable_host(Home(), name, actor="user")
    _tell_change(name, "enabled", "takes turns", changed=done, as_json=as_json)


def _tell_change(name: str, state: str, words: str, *, changed: bool, as_json: bool) -> None:
    if as_json:
        emit({"name": name, "state": state, "changed": changed})
    else:
        say(f"{name} {words}" + ("" if changed else ", as before"))


@command.command("remove")
@click.argument("name")
@click.option("--purge", is_flag=True, help="Also remove all that shunter has there.")
@click.option("--yes", is_flag=True, help="Do not ask before that.")
@click.option("--discard", is_flag=True, help="With --purge: also what is not at home or on origin.")
@json_option
def remove(name: str, purge: bool, yes: bool, discard: bool, as_json: bool) -> None:
    """Take a host out of the pool. Refused while turns run there or wait for it alone.

    Its tasks stay, but cannot be continued or fetched any more. What shunter left there stays too, unless --purge:
    that shows it, asks, and removes it before the entry goes. Tasks of another home or under another name of the
    machine, and what is not at home or not on origin, are removed with --discard only.
    """
    if purge and as_json and not yes:
        raise ShunterError("USAGE", "with --json nobody is asked", hint="add --yes to --purge, or leave out --json")
    home = Home()
    entry = refuse_removal(home, name)
    tell = (lambda line: click.echo(line, err=True)) if as_json else say
    alone = undelivered_on(home, name)
    remains = find_remains(home, entry) if purge else None
    if alone and purge and remains is None and not discard:
        hint = f"shunter fetch {alone[0]}, or add --discard"
        raise ShunterError("RESULT_UNDELIVERED", f"results on {name} alone: {' '.join(alone)}", hint=hint)
    if alone:
        click.echo(f"shunter: results on {name} alone, which cannot be fetched any more: {' '.join(alone)}", err=True)
    unpushed = unpushed_on(home, name)
    if purge:
        if remains is None:
            unpushed = _ask_for_all(home, entry, tell, yes=yes, discard=discard)
        else:
            for line in _told_of_remains(remains, name):
                tell(visible(line))
            if not yes:
                click.confirm(f"Take {name} out of the pool?", abort=True)
        try:
            done = purge_host(home, entry)
        except ShunterError as exc:
            if exc.code == "INTERRUPTED":
                take_interrupts(IGNORE)  # a second one must not take the words
            raise
        tell(visible(done))
    if purge and discard:
        give_up_pushes(home, unpushed, actor="user")
        for push in unpushed:
            tell(visible(f"given up: {words_of(push)}"))
    else:
        for push in unpushed:
            click.echo(f"shunter: cannot be pushed from {name} any more: {visible(words_of(push))}", err=True)
    removed = remove_host(home, name)
    if as_json:
        emit({"name": name, "removed": removed, "purged": purge})
    else:
        say(f"{name} is out of the pool" if removed else f"{name} is there without an entry; nothing was changed")


def _ask_for_all(
    home: Home, entry: HostEntry, tell: Callable[[str], None], *, yes: bool, discard: bool
) -> tuple[Push, ...]:
    """Show what a purge would remove; the pushes that go with it. Raises what `refuse_purge` does, or Abort at a no."""
    there = take_inventory(home, entry)
    for line in _told(there, entry.name):
        tell(visible(line))
    if not discard:
        refuse_purge(entry, there)
    if not yes:
        click.confirm("Remove it? What was not fetched is lost", abort=True)
        there = take_inventory(home, entry)  # others may have come while the question stood
        if not discard:
            refuse_purge(entry, there)
    return there.unpushed


def _told_of_remains(remains: DataRoot, name: str) -> list[str]:
    if remains.remains:
        return [f"left of an earlier purge on {name}: {' '.join(remains.remains)}"]
    return [f"{remains.path} on {name}: nothing is there"]


def _told(there: Inventory, name: str) -> list[str]:
    found = there.contents
    tasks = [held.task_id for held in found.tasks]
    lines = [
        f"{found.data_root} on {name}: {found.bytes >> 20} MB",
        f"  {count(len(tasks), 'task')}: {' '.join(tasks) or 'none'}",
    ]
    if there.foreign:
        lines.append(f"    of another home: {' '.join(there.foreign)}")
    lines += [f"    of this home as {other}: {' '.join(ids)}" for other, ids in there.namesakes.items()]
    if there.unfetched:
        lines.append(f"    not fetched: {' '.join(there.unfetched)}")
    if there.loose:
        lines.append(f"    with something in the workspace alone: {' '.join(there.loose)}")
    if there.unpushed:
        lines.append(f"    not on origin: {' '.join(push.task_id for push in there.unpushed)}")
    lines.append(f"  {count(len(found.mirrors), 'mirror')}: {' '.join(found.mirrors) or 'none'}")
    lines += [f"  {other} of the pool has the same data root" for other in there.shared_with]
    return lines
