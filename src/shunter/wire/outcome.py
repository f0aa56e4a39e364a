"""How an attempt ended, as the host tells it and home keeps it.

Apart from the other messages, because every command that reads the store needs these, and each further dataclass costs
it half a millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple


@dataclass(frozen=True)
class UsageSeen:
    input_tokens: Optional[int] = None
    cached_tokens: Optional[int] = None
    output_tokens: Optional[int] = None
    cost_usd: Optional[float] = None


@dataclass(frozen=True)
class QuestionSeen:
    text: str
    options: Tuple[str, ...] = ()


@dataclass(frozen=True)
class FileChange:
    """`status` is git's letter (A, M, D, T, R…); names with bytes that are no UTF-8 carry surrogates."""

    path: str
    status: str
    added: Optional[int]  # None for binary files
    deleted: Optional[int]


@dataclass(frozen=True)
class Publication:
    """What a turn left in git, relative to the task's base."""

    head_oid: str
    commits: int  # ahead of the task's base
    turn_commits: int = 0  # ahead of where this turn began
    leftovers_committed: bool = False
    rewritten: bool = False  # the base is no ancestor of the head any more
    files: Tuple[FileChange, ...] = ()
    files_total: int = 0
    insertions: int = 0
    deletions: int = 0
    kept: Tuple[str, ...] = ()  # work that is not part of the result: name, object id and ref in the mirror
    notices: Tuple[str, ...] = ()


@dataclass(frozen=True)
class End:
    """How an attempt ended: the outcome, what was seen, and what was published."""

    outcome: str  # kinds of agents.contract
    evidence: str
    summary: str = ""
    questions: Tuple[QuestionSeen, ...] = ()
    structured: bool = False
    usage: UsageSeen = UsageSeen()
    session_usage: Optional[UsageSeen] = None
    reason: str = "exit"  # exit, timeout, cancel, terminated, spawn_failed, supervisor_died
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    background: int = 0  # processes that the agent left running and that were ended
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    cpu_s: Optional[float] = None
    peak_rss_kib: Optional[int] = None
    publication: Optional[Publication] = None
    error_code: Optional[str] = None
    error_text: Optional[str] = None
