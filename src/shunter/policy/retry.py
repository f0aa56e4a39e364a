"""What follows from a turn that went wrong, without anybody being asked (X2, lesson 10). Pure.

Only an overload of the provider is repeated: it passes, and nothing about task, prompt or account is wrong. A repeat is
a further turn of the task. Which host and which session it goes to is settled already: those of the turn before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..agents import contract
from ..model.records import Turn
from ..wire.messages import End

PAUSE_GROWTH = 4.0
JITTER = 0.2  # of the pause, on top: tasks that were turned away together do not come back together


@dataclass(frozen=True, slots=True)
class RetryRule:
    """The table `[retry]` of the configuration."""

    overload: int = 3  # repeats of one message; 0 = none
    overload_pause_s: float = 30.0  # before the first one


class Again(NamedTuple):
    """Do it once more."""

    at: float
    number: int  # 1 is the first repeat
    limit: int
    words: str


class Stop(NamedTuple):
    """It could have been repeated, and is not."""

    words: str


def did_nothing(end: End) -> bool:
    """Known to have called no tool and got no token; what is not known may have been something."""
    return end.tool_calls == 0 and not end.usage.output_tokens


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
        tried = f"after {turn.repeat_number} repeats" if turn.repeat_number else "[retry] overload is 0"
        return Stop(f"overloaded, not repeated: {tried}")
    if not resumes and not (did_nothing(end) and left_nothing(end)):
        return Stop("overloaded, not repeated: there is no session to go on in, and the turn may have done something")
    number = turn.repeat_number + 1
    pause_s = rule.overload_pause_s * PAUSE_GROWTH**turn.repeat_number * (1.0 + JITTER * spread)
    how = "in the same session" if resumes else "from the start, since it had done nothing"
    return Again(now + pause_s, number, rule.overload, f"overloaded, repeat {number} of {rule.overload} {how}")
