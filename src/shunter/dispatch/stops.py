"""Accounts that get no task on a host, because turns failed there: judged from the ends in the store, at each look."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import NamedTuple

from ..fleet.config import Config
from ..model.records import Turn
from ..policy.retry import RetryRule, judge_account
from ..store.contract import Store


class Stops(NamedTuple):
    """Accounts of one host that get no task, and those that get one to see whether they work again; with the reason."""

    stopped: dict[str, str]
    tried: dict[str, str]


NO_STOPS = Stops({}, {})


def find_stops(store: Store, host: str, accounts: Iterable[str], under_way: Iterable[Turn], rule: RetryRule) -> Stops:
    """`under_way`: turns that a dispatcher has begun with; one of a stopped account is the try."""
    now = time.time()
    found = Stops({}, {})
    busy = {turn.account for turn in under_way if turn.host == host}
    for account in accounts:
        judged = judge_account(store.load_failures(host, account), rule=rule)
        if judged is None:
            continue
        why = f"{account} on {host} is stopped: {judged.words}"
        remedy = f"mend it, then: shunter host check {host}"
        if account in busy:
            found.stopped[account] = f"{why}; one task tries it now"
        elif now < judged.until:
            when = how_long(judged.until - now)
            found.stopped[account] = f"{why}; {remedy} (one task tries it in {when} by itself)"
        else:
            found.tried[account] = f"{why}; {remedy} (one task tries it next)"
    return found


def how_long(seconds: float) -> str:
    """Seconds below two minutes, minutes below two hours."""
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def retry_rule(config: Config) -> RetryRule:
    return RetryRule(
        overload=config.value("retry.overload"),
        overload_pause_s=config.value("retry.overload_pause"),
        quick_failures=config.value("retry.quick_failures"),
        quick_pause_s=config.value("retry.quick_pause"),
    )
