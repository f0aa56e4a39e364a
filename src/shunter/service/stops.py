"""What is told of accounts that get no task: from the store alone, no host is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..agents.table import is_command_line
from ..dispatch.stops import NO_STOPS, Stops, find_stops, retry_rule
from ..model.records import Task, Turn
from .home import Home
from .twins import known_twins

if TYPE_CHECKING:
    from ..fleet.config import HostConfig


def account_of(task: Task) -> str | None:
    """The login that the agent will use; a command line on its own has none."""
    return account_named(task.agent, task.options.env_profile)


def account_named(agent: str, env_profile: str | None) -> str | None:
    """`agent`: as a task keeps it."""
    if is_command_line(agent):
        return None
    return f"{agent}@{env_profile}" if env_profile else agent


def find_account_stops(home: Home, host: str, under_way: Iterable[Turn]) -> Stops:
    """Of every account that turns were given there; nothing before the first task."""
    if not home.was_used:
        return NO_STOPS
    store = home.reading
    return find_stops(store, host, store.list_accounts(host), under_way, retry_rule(home.config))


def explain_stops(home: Home) -> list[str]:
    """Every account that is stopped on a host of the pool."""
    under_way = home.reading.open_turns(waiting=False)
    stops = [find_account_stops(home, host.name, under_way) for host in home.config.hosts if host.enabled]
    return [words for each in stops for words in (*each.stopped.values(), *each.tried.values())]


def find_stopped(home: Home, account: str | None, hosts: Iterable[HostConfig]) -> dict[str, str]:
    """Those of the hosts, by name, where the account gets no task, with the reason."""
    if account is None:
        return {}
    rule, under_way = retry_rule(home.config), home.store.open_turns(waiting=False)
    stops = {host.name: find_stops(home.store, host.name, [account], under_way, rule).stopped for host in hosts}
    return {name: stopped[account] for name, stopped in stops.items() if stopped}


def warn_stopped(home: Home, task: Task) -> tuple[str, ...]:
    """Why the task waits when its account is stopped on every host that may have it."""
    pin = task.host or task.pinned_host
    hosts = [host for host in home.config.hosts if host.enabled and pin in (None, host.name)]
    stopped = find_stopped(home, account_of(task), hosts)
    if not stopped:
        return ()
    twins = known_twins(home)
    return tuple(stopped.values()) if all(host.name in stopped or host.name in twins for host in hosts) else ()
