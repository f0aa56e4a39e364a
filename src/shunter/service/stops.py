"""What is told of accounts that get no task: from the store alone, no host is asked."""

from __future__ import annotations

from collections.abc import Iterable

from ..dispatch.stops import NO_STOPS, Stops, find_stops, retry_rule
from ..model.records import Task, Turn
from .home import Home


def account_of(task: Task) -> str | None:
    """The login that the agent will use; a command line on its own has none."""
    if task.agent.startswith("exec:"):
        return None
    return f"{task.agent}@{task.options.env_profile}" if task.options.env_profile else task.agent


def find_account_stops(home: Home, host: str, under_way: Iterable[Turn]) -> Stops:
    """Of every account that turns were given there; nothing before the first task."""
    if not home.places.store_file.exists():
        return NO_STOPS
    store = home.reading
    return find_stops(store, host, store.list_accounts(host), under_way, retry_rule(home.config))


def explain_stops(home: Home) -> list[str]:
    """Every account that is stopped on a host of the pool."""
    under_way = home.reading.open_turns(waiting=False)
    stops = [find_account_stops(home, host.name, under_way) for host in home.config.hosts if host.enabled]
    return [words for each in stops for words in (*each.stopped.values(), *each.tried.values())]


def warn_stopped(home: Home, task: Task) -> tuple[str, ...]:
    """Why the task waits when its account is stopped on every host that may have it."""
    account, pin = account_of(task), task.host or task.pinned_host
    if account is None:
        return ()
    rule, under_way = retry_rule(home.config), home.store.open_turns(waiting=False)
    words: list[str] = []
    for host in home.config.hosts:
        if host.enabled and pin in (None, host.name):
            stopped = find_stops(home.store, host.name, [account], under_way, rule).stopped
            if not stopped:
                return ()
            words += stopped.values()
    return tuple(words)
