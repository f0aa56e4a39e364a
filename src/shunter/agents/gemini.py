"""Gemini CLI (`gemini -o stream-json`); facts from runs of 0.61.0.

- It needs a kind of login chosen in its settings, and `--skip-trust` for a directory that it has not seen.
- The final event is `result` with a status. Exit status: 41 no login, 42 input or unknown session, 53 turn limit,
  otherwise 0, or the HTTP status of a refused request modulo 256 (429 is 173, 400 is 144). A cut stream ends with 0.
- A limit per day ends the turn at once, one per minute and a provider out of reach are tried again for minutes.
- SIGTERM to its first process is ignored, SIGTERM to all ends in status 0: a cancelled turn ends by SIGKILL.
- No sandbox that was tried, no schema, no effort, no cost, no limit of turns as an option.
- `@path` in a prompt puts the file behind the prompt; `/word` at its beginning is a command.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..wire.messages import Usage
from .contract import AUTH, USAGE_ERROR, AuthCheck, Ended, Event, Launch, Outcome, SessionRule, Turn
from .options import check_options
from .prompt import ask_for_result, hide_command
from .stream import Words, bounded, count_at, notice_of, parse_object, telling_line, text_at, value_at
from .tools import tool_event
from .usage import describe_usage
from .verdict import UNKNOWN_SESSIONS, Complaint, Seen, decide_outcome, events_of, failed_turn, judge_refusal

_EXITS = {41: AUTH, 42: USAGE_ERROR, 55: USAGE_ERROR}


def launch(turn: Turn) -> Launch:
    check_options("gemini", turn, unknown=("effort", "max_turns", "max_budget_usd"))
    argv = [*(turn.command or ("gemini",)), "-o", "stream-json", "--approval-mode", "yolo", "--skip-trust"]
    if turn.session_id is not None:
        argv += ["--resume", turn.session_id]
    elif turn.new_session_id:
        argv += ["--session-id", turn.new_session_id]
    if turn.model is not None:
        argv += ["--model", turn.model]
    return Launch(
        argv=tuple(argv),
        env={"GEMINI_TELEMETRY_ENABLED": "false", **turn.env},
        session=SessionRule(marker='"init"', key="session_id"),
        session_id=turn.session_id or turn.new_session_id or None,
        permission="unattended",
        keeps_unanswered=False,
    )


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return (*(command or ("gemini",)), "--version")


def auth_check() -> Optional[AuthCheck]:
    """It has no such command."""
    return None


def sandbox_programs() -> Tuple[str, ...]:
    return ()


def prepare_prompt(text: str) -> str:
    return ask_for_result(hide_command(text))


def find_outcome(ended: Ended) -> Outcome:
    seen, words = Seen(), Words()
    for event in events_of(ended, seen, words):
        _see(seen, words, event)
    seen.final_text = words.last()
    seen.hand_in(seen.final_text)
    if seen.ended_well is not True:
        seen.complaint = _judged(seen, ended)
    return decide_outcome(ended, seen)


def _judged(seen: Seen, ended: Ended) -> Optional[Complaint]:
    """The complaint, or the last words on stderr, in the light of the exit status."""
    status = ended.exit_code + 256 if ended.exit_code is not None and ended.exit_code >= 144 else None
    if seen.complaint is not None:
        return Complaint(seen.complaint.text, judge_refusal(seen.complaint.text, status))
    words = ended.stderr_tail[-8192:].decode("utf-8", "replace").lower()
    if not seen.events and any(mark in words for mark in UNKNOWN_SESSIONS):
        return None  # told apart where no event came
    said = telling_line(ended.stderr_tail)
    kind = _EXITS.get(ended.exit_code or 0) or (judge_refusal(said, status) if status else None)
    return Complaint(f"exit status {ended.exit_code}: {said}", kind) if kind else None


def _see(seen: Seen, words: Words, event: Dict[str, Any]) -> None:
    kind = text_at(event, "type")
    if kind == "init":
        seen.session_id = bounded(text_at(event, "session_id"), 128) or None
    elif kind == "message":
        seen.complaint = None
        if text_at(event, "role") == "assistant":
            words.say(text_at(event, "content"))
    elif kind in ("tool_use", "tool_result"):
        seen.complaint = None
        seen.tool_calls += kind == "tool_use"
        words.stop()
    elif kind == "error":
        seen.ended_well = None
        seen.complaint = failed_turn(text_at(event, "message")) or seen.complaint
    elif kind == "result":
        status = text_at(event, "status")
        seen.usage = _usage(event)
        seen.ended_well = {"success": True, "error": False}.get(status)
        said = failed_turn(text_at(event, "error", "message"))
        seen.complaint = None if seen.ended_well else said or seen.complaint
    else:
        return
    seen.events += 1


def _usage(event: Dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_at(event, "stats", "input_tokens"),
        cached_tokens=count_at(event, "stats", "cached"),
        output_tokens=count_at(event, "stats", "output_tokens"),
    )


def read_event(line: bytes) -> List[Event]:
    event = parse_object(line)
    if event is None:
        return notice_of(line)
    kind = text_at(event, "type")
    if kind == "message" and text_at(event, "role") == "assistant":
        return [Event("message", bounded(text_at(event, "content")))]
    if kind == "tool_use":
        return [tool_event(text_at(event, "tool_name"), value_at(event, "parameters"))]
    if kind == "tool_result":
        said = text_at(event, "output") or text_at(event, "error", "message")
        return [Event("tool", bounded(said))] if said else []
    if kind == "error":
        return [Event("error", bounded(text_at(event, "message")))]
    if kind == "result":
        failed = text_at(event, "status") != "success"
        ended = f"failed: {text_at(event, 'error', 'message') or 'no reason given'}" if failed else "completed"
        return [Event("usage", describe_usage(_usage(event))), Event("end", bounded(ended))]
    return []
