"""What follows from a turn that went wrong, without anybody being asked (X2, X23, lesson 10). Pure.

Only an overload of the provider is repeated: it passes, and nothing about task, prompt or account is wrong. A repeat is
a further turn of the task. Which host and which session it goes to is settled already: those of the turn before.

An account is stopped by a login that failed, and by several turns in a row that failed without doing anything, whatever
they said: whoever waits would fail as well. A session is stopped by the latter alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..agents import contract
from ..model.records import Turn
from ..model.states import TurnState
from ..wire.messages import End

PAUSE_GROWTH = 4.0
LONGEST_PAUSE_S = 4 * 3600.0
LOGIN_PAUSE_S = 24 * 3600.0  # no check can prove that a login is good; sooner somebody has to say so
TOLD_CHARACTERS = 160
JITTER = 0.2  # of the pause, on top: tasks that were turned away together do not come back together


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The table `[retry]` of the configuration."""

    overload: int = 3  # repeats of one message; 0 = none
    overload_pause_s: float = 30.0  # before the first one
    quick_failures: int = 3  # in a row, that stop an account or a session; 0 = never
    quick_pause_s: float = 900.0  # until one task tries a stopped account


class Again(NamedTuple):
    """Do it once more."""

    at: float
    number: int  # 1 is the first repeat
    limit: int
    resumes: bool  # goes on in the session; False: begins a new one
    words: str


class Stop(NamedTuple):
    """It could have been repeated, and is not."""

    words: str


def did_something(end: End) -> bool:
    """Known to have called a tool, got a token or changed its branch. What the workspace alone holds may be older."""
    found = end.publication
    return bool(end.tool_calls or end.usage.output_tokens or (found is not None and found.turn_commits))


def did_nothing(end: End) -> bool:
    """Known to have called no tool, and nothing else is known that it did; without a count it may have."""
    return end.tool_calls == 0 and not did_something(end)


def left_nothing(end: End) -> bool:
    """The workspace is known to be as it was when the turn began."""
    found = end.publication
    return found is not None and not (found.turn_commits or found.left_out or found.kept)


def decide_again(turn: Turn, *, resumes: bool, rule: RetryRule, now: float, spread: float) -> Again | Stop | None:
    """Whether a turn that has ended is repeated by itself; None where nobody would expect it.

    `resumes`: the next turn goes on in this one's session. `spread`: 0 to 1, by chance.
    """
    end = turn.outcome
    if end is None or end.outcome != contract.OVERLOAD or turn.cancel_requested_at is not None:
        return None
    if turn.error_code is not None:
        return Stop(f"overloaded, not repeated: {turn.error_code}")
    if turn.repeat_number >= rule.overload:
        last = f"repeat {turn.repeat_number} of {turn.repeat_limit} was the last"
        return Stop(f"overloaded, not repeated: {last if turn.repeat_number else '[retry] overload is 0'}")
    if not resumes and not (did_nothing(end) and left_nothing(end)):
        return Stop("overloaded, not repeated: there is no session to go on in, and the turn may have done something")
    number = turn.repeat_number + 1
    pause_s = min(LONGEST_PAUSE_S, rule.overload_pause_s * PAUSE_GROWTH**turn.repeat_number) * (1.0 + JITTER * spread)
    how = "in the same session" if resumes else "from the start, since it had done nothing"
    return Again(now + pause_s, number, rule.overload, resumes, f"overloaded, repeat {number} of {rule.overload} {how}")


class Stopped(NamedTuple):
    """An account that gets no task."""

    words: str
    until: float  # then one task may try it


def is_quick_failure(turn: Turn) -> bool:
    return turn.state == TurnState.FAILED and turn.outcome is not None and did_nothing(turn.outcome)


def judge_account(failures: Iterable[Turn], *, rule: RetryRule) -> Stopped | None:
    """`failures`: newest first, those of one account on one host since a turn ended well there.

    A turn that failed after it did something says that the account works.
    """
    quick: list[Turn] = []
    for turn in failures:
        end = turn.outcome
        if end is None or end.outcome == contract.OOM or end.reason == "workspace_lost" or _is_repeated(turn, rule):
            continue  # says nothing of the account, or is waited for already
        if end.outcome == contract.AUTH:
            return Stopped(f"its login failed: {_told(end)}", (turn.settled_at or 0.0) + LOGIN_PAUSE_S)
        if not is_quick_failure(turn):
            break
        quick.append(turn)
    if not rule.quick_failures or len(quick) < rule.quick_failures or quick[0].outcome is None:
        return None
    pause_s = min(LONGEST_PAUSE_S, rule.quick_pause_s * 2.0 ** (len(quick) - rule.quick_failures))
    return Stopped(_words(len(quick), quick[0].outcome), (quick[0].settled_at or 0.0) + pause_s)


def judge_session(turns: Iterable[Turn], *, cleared_at: float | None, rule: RetryRule) -> str | None:
    """Why no further message goes to a task's session; None: it may. `turns`: of the task, last to first."""
    quick: list[Turn] = []
    for turn in turns:
        if is_quick_failure(turn) and (turn.settled_at or 0.0) > (cleared_at or 0.0):
            quick += [] if turn.repeat_number else [turn]
        elif turn.state not in (TurnState.CANCELLED, TurnState.LOST):
            break
        if turn.fresh_session:
            break
    if not rule.quick_failures or len(quick) < rule.quick_failures or quick[0].outcome is None:
        return None
    return _words(len(quick), quick[0].outcome)


def _is_repeated(turn: Turn, rule: RetryRule) -> bool:
    """An overload that has pauses of its own; only the last repeat of a message counts, as one failure."""
    overloaded = turn.outcome is not None and turn.outcome.outcome == contract.OVERLOAD
    return overloaded and turn.repeat_number < rule.overload


def _words(count: int, last: End) -> str:
    return f"{count} turns in a row failed without doing anything; last: {_told(last)}"


def _told(end: End) -> str:
    return f"{end.outcome}: {end.evidence}"[:TOLD_CHARACTERS]
