"""Why a turn that somebody waits for does not move; from what was last seen, no host is asked."""

from __future__ import annotations

import re

from ..dispatch.hosts import UNKNOWN_OUTCOME
from ..model.records import Turn
from ..model.states import Step
from .home import Home
from .pool import HostStatus, explain_row, pool_status, recent_observations
from .stops import warn_stopped
from .twins import warn_pinned
from .view import TaskView

NOT_MEANT = ("PINNED", "DISABLED", "DUPLICATE")  # such a host takes no turn of the task in any case
OUT_OF_REACH = ("HOST_UNREACHABLE", "HOST_OUTDATED")
PASSING = ("NO_SLOT", "NO_MEMORY", "NOT_YET")


def find_obstacles(home: Home, view: TaskView) -> dict[str, str]:
    """In words, by what they are about; the words alone may change from try to try.

    Of a turn that waits, as long as no host may take it sooner or later; of one whose host cannot be asked, what a
    person has to mend there.
    """
    task, turn = view.task, view.turn
    if turn is None:
        return {}
    if turn.uncertain:
        return _of_uncertain(home, turn)
    row = home.reading.load_row(turn.id) if turn.step == Step.WAITING else None
    if row is None:
        return {}
    if row.error_code == "CHECKOUT_MISSING":
        place = home.reading.load_project(task).worktree
        words = f"what it begins with is in {place}: put it back, or shunter cancel {task.id}"
        return {row.error_code: f"task {task.id} waits, {row.error_code}: {words}"}
    told = (*warn_pinned(home, task), *warn_stopped(home, task))
    if told:
        return dict(zip(told, told, strict=True))
    placement = explain_row(home, row)
    reasons = [(host, reason) for host, reason in placement.rejected if reason.code not in NOT_MEANT]
    if placement.host is not None or any(reason.code in PASSING for _, reason in reasons):
        return {}
    states = _states(home)
    found = {}
    for host, reason in reasons:
        words = (_told_of(states.get(host)) if reason.code in OUT_OF_REACH else None) or reason.words
        found[f"{host} {_kind_of(words)}"] = f"task {task.id} waits, {host}: {words}"
    return found


def _of_uncertain(home: Home, turn: Turn) -> dict[str, str]:
    code = (turn.uncertain_reason or "").partition(":")[0]
    if code in UNKNOWN_OUTCOME:
        return {}
    words = _told_of(_states(home).get(turn.host or "")) or turn.uncertain_reason
    return {f"{turn.host} {code}": f"task {turn.task_id} is uncertain, {turn.host}: {words}"}


def _states(home: Home) -> dict[str, HostStatus]:
    return {each.name: each for each in pool_status(home, recent_observations(home))}


def _told_of(status: HostStatus | None) -> str | None:
    """Reason and remedy, of a host that takes no turns."""
    if status is None or status.reason is None:
        return None
    return status.reason + (f"; {status.hint}" if status.hint else "")


def _kind_of(words: str) -> str:
    """Error code or first clause: what comes after it counts megabytes, or is ssh's word of the moment."""
    return re.split("[:,;]", words)[0]
