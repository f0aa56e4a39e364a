"""Qwen Code (`qwen -o stream-json`); facts from runs of 0.15.10, and of 0.24.4 where it is named.

- Its events are those of Claude Code, with the structured result in `structured_result`.
- A refused request is told as a message `[API Error: …]` of the agent's. With a schema the final event then complains
  that there was no structured result (status 1), without one it is `success` (status 0). 0.24.4 says is_error.
- A model that ends in plain text instead of the structured result makes an error, too, although its work is done.
- A limit (429) or a failing provider is asked again without an event and without an end: only a time limit helps.
- Usage counts the whole session. There is no cost, no effort, and no sandbox that was tried.
- The limit of turns ends it with status 53 and without a final event.
- `git commit` commands are rewritten: they get a Co-authored-by line for Qwen-Coder. An `@` inside of a word of the
  prompt gets a space before it, `@path` puts the file behind the prompt.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..wire.messages import Usage
from .contract import UNKNOWN, AuthCheck, Ended, Event, Launch, Outcome, SessionRule, Turn
from .messages import count_tool_calls, message_events, message_text
from .options import check_options
from .prompt import hide_command
from .stream import bounded, count_at, flag_at, notice_of, parse_object, text_at, value_at
from .usage import describe_usage, usage_since
from .verdict import Complaint, Seen, decide_outcome, decide_unstructured, events_of, failed_turn

_API_ERROR = "[API Error: "
_NO_RESULT = "the structured_output tool"


def launch(turn: Turn) -> Launch:
    check_options("qwen", turn, unknown=("effort", "max_budget_usd"))
    argv = [*(turn.command or ("qwen",)), "-o", "stream-json", "--approval-mode", "yolo"]
    if turn.session_id is not None:
        argv += ["--resume", turn.session_id]
    elif turn.new_session_id:
        argv += ["--session-id", turn.new_session_id]
    if turn.model is not None:
        argv += ["--model", turn.model]
    if turn.max_turns is not None:
        argv += ["--max-session-turns", str(turn.max_turns)]
    argv += ["--json-schema", "@{schema}"]
    return Launch(
        argv=tuple(argv),
        env={"QWEN_TELEMETRY_ENABLED": "false", **turn.env},
        session=SessionRule(marker='"init"', key="session_id"),
        session_id=turn.session_id or turn.new_session_id or None,
        wants_schema=True,
        permission="unattended",
    )


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return (*(command or ("qwen",)), "--version")


def auth_check() -> Optional[AuthCheck]:
    """It has no such command that was tried."""
    return None


def sandbox_programs() -> Tuple[str, ...]:
    return ()


def prepare_prompt(text: str) -> str:
    return hide_command(text)


def find_outcome(ended: Ended) -> Outcome:
    seen = Seen()
    for event in events_of(ended, seen):
        _see(seen, event)
    seen.usage = usage_since(seen.session_usage, ended.previous_usage)
    if seen.complaint is not None and seen.complaint.kind == UNKNOWN:
        seen.complaint = Complaint(seen.complaint.text, decide_unstructured(ended)[0])
    return decide_outcome(ended, seen)


def _see(seen: Seen, event: Dict[str, Any]) -> None:
    kind = text_at(event, "type")
    if kind == "assistant":
        text = message_text(event)
        seen.tool_calls += count_tool_calls(event)
        seen.complaint = failed_turn(_api_error(text))
        seen.ended_well = None if seen.complaint else seen.ended_well
        seen.final_text = text or seen.final_text
    elif kind == "user":
        seen.complaint = None
    elif kind == "result":
        _see_result(seen, event)
    elif kind != "system":
        return
    seen.events += 1
    seen.session_id = bounded(text_at(event, "session_id"), 128) or seen.session_id


def _see_result(seen: Seen, event: Dict[str, Any]) -> None:
    failed, text, error = flag_at(event, "is_error"), text_at(event, "result"), text_at(event, "error", "message")
    structured = value_at(event, "structured_result")
    seen.session_usage = _usage(event)
    if failed and _NO_RESULT in error:
        refused, error = seen.complaint, f"the model handed in no result: {error}"
        seen.ended_well, seen.complaint = False, refused or Complaint(error, UNKNOWN)
        return
    said = error if failed else "" if structured is not None else _api_error(text)
    seen.ended_well = None if failed is None else not (failed or said)
    if failed or said:
        seen.complaint = failed_turn(said) or seen.complaint
        return
    seen.complaint = None
    seen.final_text = text or seen.final_text
    seen.hand_in(text, structured)


def _api_error(text: str) -> str:
    """The error that the CLI itself wrote in the place of a message, or behind half of one."""
    begin = text.rfind(_API_ERROR)
    return text[begin:].strip() if begin >= 0 and text.endswith("]") else ""


def _usage(event: Dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_at(event, "usage", "input_tokens"),
        cached_tokens=count_at(event, "usage", "cache_read_input_tokens"),
        output_tokens=count_at(event, "usage", "output_tokens"),
    )


def read_event(line: bytes) -> List[Event]:
    event = parse_object(line)
    if event is None:
        return notice_of(line)
    kind = text_at(event, "type")
    if kind == "assistant" and _api_error(message_text(event)):
        return [Event("error", bounded(message_text(event)))]
    if kind in ("assistant", "user"):
        return message_events(event)
    if kind != "result":
        return []
    seen = Seen()
    _see_result(seen, event)
    ended = (
        "completed" if seen.ended_well else f"failed: {seen.complaint.text if seen.complaint else 'no reason given'}"
    )
    return [Event("usage", f"session: {describe_usage(_usage(event))}"), Event("end", bounded(ended))]
