"""How a turn ended, decided from what the stream told and how the process ended. Shared by agents with an event stream.

In this order, and the first that speaks decides:

1. the structured result of a turn that ended well;
2. the error channel of the event stream, when nothing followed the error;
3. how the process ended;
4. whether it meant to give a result that cannot be read, or its last words are lost: both are `unknown`;
5. what is in the workspace: changes without a result are `unknown`, neither changes nor a result is `no_changes`.

An exit status of 0 never outweighs an error, and without changes and without tokens nothing is ever `done`.
"""

from __future__ import annotations

import signal
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

from ..wire.messages import LimitNotice, Usage
from .contract import (
    CRASHED,
    DONE,
    FAILED,
    LAUNCH_FAILED,
    LIMIT,
    LOST,
    NO_CHANGES,
    SESSION_UNKNOWN,
    UNKNOWN,
    USAGE_ERROR,
    Ended,
    Gap,
    Outcome,
)
from .result import SUMMARY_LIMIT_BYTES, Result, parse_result, read_result
from .stream import Words, bounded, one_line, parse_object, telling_line, without_colours

EVIDENCE_LIMIT_BYTES = 1024
UNREADABLE = "exit status 0, but its structured result cannot be read"
# What CLIs print, before any event, about a session that they do not have or may not open.
UNKNOWN_SESSIONS = (
    "no conversation found with session id",  # Claude
    "no rollout found for thread id",  # Codex
    "no saved session found",  # Qwen
    "error: session not found",  # OpenCode
    "invalid session identifier",  # Gemini
    "no previous sessions found",  # Gemini, in a directory without any
    "no session, task, or name matched",  # Copilot
)
_HELP = "show version number"  # what several CLIs print, with the rest of their help, about an option they do not have
_USAGE = (
    "error: unknown option",
    "error: unexpected argument",
    "error: option ",
    "error: invalid value",
    "error parsing -c overrides",
    "no prompt provided",
    "input must be provided",
    "not inside a trusted directory",
    "cannot be used with root",
    "sandbox required but unavailable",
    "is already in use",
)


class Complaint(NamedTuple):
    """The last word of the error channel: the raw text, and what it means where more than the text told."""

    text: str
    kind: Optional[str] = None  # None: judged by its text, once, at the end


def failed_turn(text: str) -> Optional[Complaint]:
    """What a final event or an error says; None when it says nothing."""
    return Complaint(f"the turn failed: {text}") if text else None


class Seen:
    """What the stream told. `ended_well` is the final event's word; None when it never came or had no known type."""

    def __init__(self) -> None:
        self.events = 0
        self.ended_well: Optional[bool] = None
        self.complaint: Optional[Complaint] = None
        self.final_text = ""
        self.tried = False  # to give a result
        self.result: Optional[Result] = None
        self.lost = False  # a part of the output
        self.usage = Usage()
        self.session_usage: Optional[Usage] = None
        self.session_id: Optional[str] = None
        self.tool_calls = 0

    def hand_in(self, text: str, value: Any = None) -> None:
        """The last message, or what the agent's own field for the result holds."""
        self.tried, self.result = read_result(text) if value is None else (True, parse_result(value))

    def lose(self) -> None:
        """At a gap: what stands before it is not the last word."""
        self.lost, self.final_text, self.tried = True, "", False
        self.result = self.ended_well = None


def events_of(ended: Ended, seen: Seen, words: Optional[Words] = None) -> Iterator[Dict[str, Any]]:
    """Those of the lines that are JSON objects. What was said before a gap is forgotten."""
    for line in ended.lines:
        event = None if isinstance(line, Gap) else parse_object(line)
        if event is not None:
            yield event
        elif isinstance(line, Gap):
            seen.lose()
            if words is not None:
                words.lose()


def decide_outcome(ended: Ended, seen: Seen) -> Outcome:
    kind, evidence = _decide(ended, seen)
    structured = seen.result is not None and _ended_well(ended, seen)
    return Outcome(
        kind=kind,
        evidence=one_line(evidence, EVIDENCE_LIMIT_BYTES),
        summary=seen.result.summary if structured and seen.result else bounded(seen.final_text, SUMMARY_LIMIT_BYTES),
        questions=seen.result.questions if structured and seen.result else (),
        usage=seen.usage,
        session_usage=seen.session_usage,
        session_id=seen.session_id,
        limit=limit_of(kind, evidence, ended),
        structured=structured,
        tool_calls=seen.tool_calls,
    )


def _ended_well(ended: Ended, seen: Seen) -> bool:
    if seen.ended_well is not None:
        return seen.ended_well
    return ended.exit_code == 0 and seen.complaint is None


def _decide(ended: Ended, seen: Seen) -> Tuple[str, str]:
    if _ended_well(ended, seen):
        if seen.result is not None:
            return decide_structured(ended, seen.result, has_tokens=_has_tokens(seen.usage))
        if ended.exit_code == 0 and seen.tried:
            return UNKNOWN, UNREADABLE
        if ended.exit_code == 0 and seen.lost and not seen.final_text:
            return UNKNOWN, describe_loss(ended)
        if ended.exit_code == 0:
            return decide_unstructured(ended)
        kind, evidence = judge_exit(ended)
        return kind, f"the turn ended well, then: {evidence}"
    if seen.complaint is not None:
        return judge_complaint(seen.complaint)
    if seen.ended_well is False:
        return FAILED, "the agent reported a failure without a reason"
    return judge_exit(ended) if seen.events else judge_start(ended)


def judge_refusal(text: str, status: Optional[int] = None) -> str:
    """As `refusal` has it. Its patterns take longer to load than most turns take to judge, and most need none."""
    from .refusal import judge_refusal as judge

    return judge(text, status)


def limit_of(kind: str, evidence: str, ended: Ended) -> Optional[LimitNotice]:
    """Of an outcome; None unless it is a limit."""
    if kind != LIMIT:
        return None
    from .resets import read_limit  # as above

    return read_limit(evidence, now=ended.at, local=ended.zone)


def judge_complaint(complaint: Complaint) -> Tuple[str, str]:
    return complaint.kind or judge_refusal(complaint.text), complaint.text


def decide_structured(ended: Ended, result: Result, *, has_tokens: bool) -> Tuple[str, str]:
    if result.status == DONE and not has_changes(ended) and not has_tokens:
        return NO_CHANGES, "the result says done, but there are neither changes nor tokens used"
    late = "" if ended.exit_code == 0 else f", then {describe_exit(ended)}"
    return result.status, f"the structured result says {result.status}{late}"


def decide_unstructured(ended: Ended) -> Tuple[str, str]:
    """For an agent with a result of its own: exit status 0 and changes alone do not tell whether the task is done."""
    if has_changes(ended):
        return UNKNOWN, "exit status 0 and changes, but no valid structured result"
    return NO_CHANGES, "exit status 0, no changes and no structured result"


def describe_loss(ended: Ended) -> str:
    return f"exit status 0, but {ended.lost_bytes} bytes of its output are not kept, and how it ended may stand in them"


def has_changes(ended: Ended) -> bool:
    return ended.commits > 0 or bool(ended.files_changed)


def _has_tokens(usage: Usage) -> bool:
    return bool(usage.input_tokens or usage.output_tokens or usage.cost_usd)


def judge_exit(ended: Ended) -> Tuple[str, str]:
    """A process that ended without a word of its own in the stream."""
    if ended.signal is not None or (ended.exit_code is not None and 128 < ended.exit_code < 160):
        return CRASHED, describe_exit(ended)
    if ended.exit_code is None:
        return LOST, describe_exit(ended)
    if ended.exit_code == 0:
        return decide_unstructured(ended)
    return FAILED, _with_stderr(ended)


def judge_start(ended: Ended) -> Tuple[str, str]:
    """A process that ended without any event: its stderr holds only the CLI's own words, so they may be read."""
    if not ended.exit_code:
        return judge_exit(ended)
    said = without_colours(ended.stderr_tail[-8192:].decode("utf-8", "replace"))
    words = said.lower()
    text = _with_stderr(ended)
    about = next(
        (line.strip() for line in said.splitlines() if any(mark in line.lower() for mark in UNKNOWN_SESSIONS)), ""
    )
    if about:
        return USAGE_ERROR, f"{SESSION_UNKNOWN}: {describe_exit(ended)}: {about}"
    if ended.exit_code in (126, 127):
        return LAUNCH_FAILED, text
    if _HELP in words:
        return USAGE_ERROR, f"{describe_exit(ended)}: the program printed its help instead of starting"
    if ended.exit_code == 2 or any(mark in words for mark in _USAGE):
        return USAGE_ERROR, text
    kind, evidence = judge_exit(ended)
    if kind != FAILED:
        return kind, evidence
    first = next((line.strip() for line in said.splitlines() if line.strip()), "")
    by_last, by_first = judge_refusal(telling_line(ended.stderr_tail)), judge_refusal(first)
    return (
        (by_last, text) if by_last != FAILED or by_first == FAILED else (by_first, f"{describe_exit(ended)}: {first}")
    )


def describe_exit(ended: Ended) -> str:
    if ended.signal is not None:
        return f"killed by signal {ended.signal}{_signal_name(ended.signal)}"
    if ended.exit_code is None:
        return "how the process ended is not known"
    named = _signal_name(ended.exit_code - 128) if ended.exit_code > 128 else ""
    return f"exit status {ended.exit_code}{named}"


def _signal_name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""


def _with_stderr(ended: Ended) -> str:
    said = telling_line(ended.stderr_tail)
    return f"{describe_exit(ended)}: {said}" if said else describe_exit(ended)
