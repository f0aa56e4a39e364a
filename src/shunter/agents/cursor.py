"""Cursor Agent (`cursor-agent -p --output-format stream-json`), by its documentation: it was never run here.

- The prompt comes in by a pipe, which print mode reads. `--force` runs every tool without a question, `--trust` spares
  the question about a directory that it has not seen. It has a sandbox option that was not tried.
- The stream begins with `system`/`init` and ends with `result`, which a failing run leaves out: then the exit status is
  not 0 and the reason is on stderr.
- A tool call is an object with one key, `shellToolCall` or `writeToolCall`, say, that holds `args` and `result`.
- No schema, no effort, no limit of turns or money, no session id of ours. Newer versions tell token counts.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..wire.messages import Usage
from .contract import AuthCheck, Ended, Event, Launch, Outcome, SessionRule, Turn
from .messages import message_events, message_text
from .options import check_options
from .prompt import ask_for_result, hide_command
from .stream import bounded, count_at, flag_at, notice_of, parse_object, telling_line, text_at, value_at
from .tools import tool_event
from .usage import describe_usage, sum_known
from .verdict import Complaint, Seen, decide_outcome, describe_exit, events_of


def launch(turn: Turn) -> Launch:
    check_options("cursor", turn, unknown=("effort", "max_turns", "max_budget_usd"))
    argv = [*(turn.command or ("cursor-agent",)), "-p", "--output-format", "stream-json", "--force", "--trust"]
    if turn.session_id is not None:
        argv += ["--resume", turn.session_id]
    if turn.model is not None:
        argv += ["--model", turn.model]
    return Launch(
        argv=tuple(argv),
        env=dict(turn.env),
        session=SessionRule(marker='"init"', key="session_id"),
        session_id=turn.session_id,
        permission="unattended",
    )


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return (*(command or ("cursor-agent",)), "--version")


def auth_check() -> Optional[AuthCheck]:
    """Not known to be askable without a refresh; it was not tried."""
    return None


def sandbox_programs() -> Tuple[str, ...]:
    return ()


def prepare_prompt(text: str) -> str:
    return ask_for_result(hide_command(text))


def find_outcome(ended: Ended) -> Outcome:
    seen = Seen()
    for event in events_of(ended, seen):
        _see(seen, event)
    seen.hand_in(seen.final_text)
    said = telling_line(ended.stderr_tail)
    if seen.events and seen.ended_well is None and ended.exit_code and said:
        seen.complaint = Complaint(f"{describe_exit(ended)}: {said}")
    return decide_outcome(ended, seen)


def _see(seen: Seen, event: Dict[str, Any]) -> None:
    kind = text_at(event, "type")
    if kind == "assistant":
        seen.final_text = message_text(event, "") or seen.final_text
    elif kind == "result":
        failed = flag_at(event, "is_error")
        text = text_at(event, "result")
        seen.ended_well = None if failed is None else not failed
        seen.usage = _usage(event)
        seen.final_text = seen.final_text or text
        if failed:
            seen.complaint = Complaint(f"the turn failed: {text_at(event, 'error') or text or 'no reason given'}")
    elif kind == "tool_call":
        seen.tool_calls += text_at(event, "subtype") == "started"
    elif kind not in ("system", "user", "thinking"):
        return
    seen.events += 1
    seen.session_id = bounded(text_at(event, "session_id"), 128) or seen.session_id


def _usage(event: Dict[str, Any]) -> Usage:
    used = value_at(event, "usage")
    cached = count_at(used, "cacheReadTokens")
    return Usage(
        input_tokens=sum_known(count_at(used, "inputTokens"), cached, count_at(used, "cacheWriteTokens")),
        cached_tokens=cached,
        output_tokens=count_at(used, "outputTokens"),
    )


def read_event(line: bytes) -> List[Event]:
    event = parse_object(line)
    if event is None:
        return notice_of(line)
    kind = text_at(event, "type")
    if kind == "assistant":
        return message_events(event)
    if kind == "tool_call":
        return _tool_events(event)
    if kind == "result":
        failed = flag_at(event, "is_error") is not False
        told = f"failed: {text_at(event, 'error') or text_at(event, 'result')}" if failed else "completed"
        return [Event("usage", describe_usage(_usage(event))), Event("end", bounded(told))]
    return []


def _tool_events(event: Dict[str, Any]) -> List[Event]:
    """A call is told when it begins; of its end only what a command gave."""
    call = value_at(event, "tool_call")
    key = next((name for name in call if name.endswith("ToolCall")), "") if isinstance(call, dict) else ""
    if not key:
        return []
    if text_at(event, "subtype") == "started":
        return [tool_event(key[: -len("ToolCall")], value_at(call, key, "args"))]
    result = value_at(call, key, "result")
    gave = value_at(result, "success") or value_at(result, "failure")
    if key != "shellToolCall" or not isinstance(gave, dict):
        return []
    output = text_at(gave, "stdout") + text_at(gave, "stderr")
    return [Event("command", bounded(output.rstrip("\n")), exit_code=count_at(gave, "exitCode"))]
