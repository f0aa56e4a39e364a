"""GitHub Copilot CLI (`copilot --output-format json`); facts from runs of 1.0.102.

- The session id stands in the last event only, so we choose it. Its name for one that it does not have is on stderr.
- The events hold no token counts; they are in the file of `--usage-output-file`, for which ours of the last message is
  named. Copilot counts credits, not money.
- A failed request is `model.call_failure`; after all retries comes `session.error`. The final event is `result`.
- Without `--allow-all` every tool is refused and the exit status is 0. It has no sandbox that was tried.
- The first start unpacks 238 MB below ~/.cache.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..wire.messages import Usage
from .contract import AUTH, LIMIT, AuthCheck, Ended, Event, Launch, Outcome, Turn
from .options import check_options
from .prompt import ask_for_result, hide_command
from .stream import bounded, count_at, flag_at, list_at, notice_of, parse_object, text_at, value_at
from .tools import tool_event
from .usage import sum_known
from .verdict import Complaint, Seen, decide_outcome, events_of, judge_refusal

_ALWAYS = ("--output-format", "json", "--allow-all", "--no-ask-user", "--no-auto-update", "--disable-client-telemetry")
_KINDS = {"rate_limit": LIMIT, "quota": LIMIT, "authentication": AUTH}


def launch(turn: Turn) -> Launch:
    check_options("copilot", turn, unknown=("max_turns", "max_budget_usd"))
    argv = [*(turn.command or ("copilot",)), *_ALWAYS, "--usage-output-file", "{last_message}"]
    if turn.session_id is not None:
        argv.append(f"--resume={turn.session_id}")
    elif turn.new_session_id:
        argv.append(f"--session-id={turn.new_session_id}")
    if turn.model is not None:
        argv += ["--model", turn.model]
    if turn.effort is not None:
        argv += ["--reasoning-effort", turn.effort]
    return Launch(
        argv=tuple(argv),
        env={"COPILOT_AUTO_UPDATE": "false", **turn.env},
        session_id=turn.session_id or turn.new_session_id or None,
        permission="unattended",
    )


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return (*(command or ("copilot",)), "--version")


def auth_check() -> Optional[AuthCheck]:
    """It has no such command."""
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
    seen.usage = _usage(ended.last_message)
    return decide_outcome(ended, seen)


def _see(seen: Seen, event: Dict[str, Any]) -> None:
    kind, data = text_at(event, "type"), value_at(event, "data")
    if kind == "assistant.message":
        seen.complaint = None
        if not text_at(data, "parentToolCallId"):  # what a helper of the agent says is not its last word
            seen.final_text = text_at(data, "content") or seen.final_text
    elif kind in ("tool.execution_start", "tool.execution_complete"):
        seen.complaint = None
        seen.tool_calls += kind == "tool.execution_start"
    elif kind == "model.call_failure":
        text, status = text_at(data, "errorMessage"), count_at(data, "statusCode")
        seen.ended_well = None
        seen.complaint = Complaint(f"the last request failed: {status or ''} {text}", judge_refusal(text, status))
    elif kind == "session.error":
        seen.ended_well, seen.complaint = None, _complaint(data)
    elif kind == "result":
        code = count_at(event, "exitCode")
        seen.ended_well = None if code is None else code == 0
        seen.complaint = None if seen.ended_well else seen.complaint
        seen.session_id = bounded(text_at(event, "sessionId"), 128) or None
    seen.events += bool(kind)


def _complaint(data: Any) -> Complaint:
    named, text = text_at(data, "errorType"), text_at(data, "message")
    by_text = judge_refusal(text, count_at(data, "statusCode"))
    return Complaint(f"the turn failed: {text or named}", _KINDS.get(named, by_text))


def _usage(written: Optional[str]) -> Usage:
    """Of the run, all models together; input includes what came out of the cache."""
    models = value_at(parse_object(written or ""), "modelMetrics")
    used = [value_at(each, "usage") for each in models.values()] if isinstance(models, dict) else []
    return Usage(
        input_tokens=sum_known(*(count_at(each, "inputTokens") for each in used)),
        cached_tokens=sum_known(*(count_at(each, "cacheReadTokens") for each in used)),
        output_tokens=sum_known(*(count_at(each, "outputTokens") for each in used)),
    )


def read_event(line: bytes) -> List[Event]:
    event = parse_object(line)
    if event is None:
        return notice_of(line)
    kind, data = text_at(event, "type"), value_at(event, "data")
    if kind == "assistant.message":
        text = text_at(data, "content")
        return [Event("message", bounded(text))] if text else []
    if kind == "assistant.reasoning":
        return [Event("thinking", bounded(text_at(data, "content")))]
    if kind == "tool.execution_start":
        return [tool_event(text_at(data, "toolName"), value_at(data, "arguments"))]
    if kind == "tool.execution_complete":
        return _tool_end_events(data)
    if kind == "assistant.turn_retry":
        return [Event("notice", bounded(f"the request failed ({text_at(data, 'reason')}) and is tried again"))]
    if kind == "session.error":
        return [Event("error", bounded(text_at(data, "message")))]
    if kind == "result":
        code = count_at(event, "exitCode")
        return [Event("end", "completed" if code == 0 else f"failed: exit status {code}")]
    return []


def _tool_end_events(data: Any) -> List[Event]:
    text = text_at(data, "result", "content") or text_at(data, "error", "message")
    exit_code = count_at(data, "shellExecution", "exitCode")
    if exit_code is not None:
        return [Event("command", bounded(text), exit_code=exit_code)]
    if list_at(data, "fileEdits") and flag_at(data, "success"):
        return []  # its start has told the file
    return [Event("tool", bounded(text))] if text else []
