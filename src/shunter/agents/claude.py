"""Claude Code (`claude -p --output-format stream-json`); facts from runs of 2.1.197 and 2.1.332.

- stream-json needs --verbose. A session is looked up by directory, so it can be resumed in its own workspace only.
- `--dangerously-skip-permissions` is refused for root. `unattended` is therefore an allow list in mode dontAsk, which
  works for root and users alike; it lets every command run except one that writes a file inside `.git` directly.
- `workspace` is Claude's own sandbox: files outside of the workspace are read-only to commands, edits are accepted
  inside of it only, network through its proxy alone. On Linux it needs bubblewrap and socat on the host; without them
  the CLI refuses to start, which we ask for: with its sandbox missing it would otherwise run commands in the open.
- `subtype` is no sign of success: an API error ends in `success` with is_error true.
- A message of the model `<synthetic>` is the CLI's own, which is how limits are told. It is part of the error channel.
- total_cost_usd counts the session in 2.1.332 and the run in 2.1.197; the usage is the run's in both.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional, Tuple

from ..wire.messages import Usage
from .contract import (
    AUTH,
    FAILED,
    LIMIT,
    OVERLOAD,
    SESSION_UNKNOWN,
    USAGE_ERROR,
    AuthCheck,
    Ended,
    Event,
    Launch,
    Outcome,
    SessionRule,
    Turn,
)
from .messages import count_tool_calls, message_events, message_text
from .options import check_options
from .prompt import hide_command
from .result import SCHEMA
from .stream import (
    amount_at,
    bounded,
    count_at,
    flag_at,
    list_at,
    notice_of,
    parse_object,
    text_at,
    value_at,
)
from .usage import describe_usage, sum_known
from .verdict import UNKNOWN_SESSIONS, Complaint, Seen, decide_outcome, events_of, judge_refusal

_SESSION = SessionRule(marker='"init"', key="session_id")
_QUIET = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
_SANDBOX = {
    "sandbox": {
        "enabled": True,
        "failIfUnavailable": True,
        "autoAllowBashIfSandboxed": True,
        "allowUnsandboxedCommands": False,
    }
}
# A comma list, since the option would swallow further words. Bash alone in the sandbox: edits go by acceptEdits.
_SANDBOXED_TOOLS = "Bash,Glob,Grep,Skill,Task"
_ALL_TOOLS = "Bash,Edit,Glob,Grep,NotebookEdit,Read,Skill,Task,WebFetch,WebSearch,Write"


def launch(turn: Turn) -> Launch:
    check_options("claude", turn)
    argv = [*(turn.command or ("claude",)), "-p", "--output-format", "stream-json", "--verbose"]
    if turn.session_id is not None:
        argv += ["--resume", turn.session_id]
    elif turn.new_session_id:
        argv += ["--session-id", turn.new_session_id]
    if turn.permission == "workspace":
        argv += ["--permission-mode", "acceptEdits", "--allowedTools", _SANDBOXED_TOOLS]
        argv += ["--settings", json.dumps(_SANDBOX, separators=(",", ":"))]
    else:
        argv += ["--permission-mode", "dontAsk", "--allowedTools", _ALL_TOOLS]
    if turn.model is not None:
        argv += ["--model", turn.model]
    if turn.effort is not None:
        argv += ["--effort", turn.effort]
    if turn.max_turns is not None:
        argv += ["--max-turns", str(turn.max_turns)]
    if turn.max_budget_usd is not None:
        argv += ["--max-budget-usd", f"{turn.max_budget_usd:.4f}"]
    argv += ["--json-schema", json.dumps(SCHEMA, separators=(",", ":"))]
    return Launch(
        argv=tuple(argv),
        env={**_QUIET, **turn.env},
        session=_SESSION,
        session_id=turn.session_id or turn.new_session_id or None,
        permission=turn.permission,
    )


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return (*(command or ("claude",)), "--version")


def auth_check() -> Optional[AuthCheck]:
    """It tells whether there is any login, not whether that is any good."""
    names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
    others = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX")
    return AuthCheck(("auth", "status"), (*names, *others), "claude auth login")


def sandbox_programs() -> Tuple[str, ...]:
    """Programs that a host must have for permission `workspace`; without them only `unattended` can be had."""
    return ("bwrap", "socat")


def prepare_prompt(text: str) -> str:
    return hide_command(text)


def find_outcome(ended: Ended) -> Outcome:
    seen = Seen()
    notes = _Notes()
    for event in events_of(ended, seen):
        _see(seen, notes, event)
    return decide_outcome(ended, seen)


class _Notes:
    """What earlier events leave for the final one."""

    def __init__(self) -> None:
        self.limit = ""  # of a rejected rate_limit_event: which window, and its end as Unix seconds
        self.error = ""  # the error name of the last message
        self.synthetic = ""  # text of the last message when the CLI itself wrote it


def _see(seen: Seen, notes: _Notes, event: Dict[str, Any]) -> None:
    kind = text_at(event, "type")
    if kind == "system":
        _see_system(seen, event)
    elif kind == "rate_limit_event":
        _see_limit(notes, event)
    elif kind == "assistant":
        _see_message(seen, notes, event)
    elif kind == "user":
        seen.complaint, notes.synthetic, notes.error = None, "", ""
    elif kind == "result":
        _see_result(seen, notes, event)
    else:
        return
    seen.events += 1
    seen.session_id = bounded(text_at(event, "session_id"), 128) or seen.session_id


def _see_system(seen: Seen, event: Dict[str, Any]) -> None:
    if text_at(event, "subtype") == "api_retry":
        error, status = text_at(event, "error"), count_at(event, "error_status")
        said = f"the last request failed: {error} {status or ''}".rstrip()
        seen.complaint = Complaint(said, _judge(error, "", status))


def _see_limit(notes: _Notes, event: Dict[str, Any]) -> None:
    info = value_at(event, "rate_limit_info")
    if text_at(info, "status") == "rejected":
        resets_at = count_at(info, "resetsAt")
        notes.limit = (
            f"{text_at(info, 'rateLimitType')} limit, resetsAt {resets_at if resets_at is not None else 'unknown'}"
        )


def _see_message(seen: Seen, notes: _Notes, event: Dict[str, Any]) -> None:
    text = message_text(event)
    seen.tool_calls += count_tool_calls(event)
    notes.error = text_at(event, "error")
    notes.synthetic = text if text_at(event, "message", "model") == "<synthetic>" else ""
    if notes.error:
        seen.ended_well = None
        seen.complaint = Complaint(f"the turn failed: {notes.error}: {text}", _judge(notes.error, text, None))
    else:
        seen.complaint = None  # it went on after all
        seen.final_text = text or seen.final_text


def _see_result(seen: Seen, notes: _Notes, event: Dict[str, Any]) -> None:
    failed = flag_at(event, "is_error")
    subtype, text = text_at(event, "subtype"), text_at(event, "result")
    if subtype == "error_max_structured_output_retries":
        failed = False  # the work is done, only its description is missing
    seen.ended_well = None if failed is None else not failed
    seen.usage, seen.session_usage = _usage(event)
    if failed:
        seen.complaint = _complaint(event, notes)
        return
    refusal = judge_refusal(notes.synthetic) if notes.synthetic else FAILED
    if refusal != FAILED:
        seen.ended_well, seen.complaint = False, Complaint(f"the turn failed: {notes.synthetic}", refusal)
        return
    seen.final_text = text or seen.final_text
    structured = value_at(event, "structured_output")
    seen.hand_in(text, structured)


def _complaint(event: Dict[str, Any], notes: _Notes) -> Complaint:
    subtype = text_at(event, "subtype")
    errors = "; ".join(each for each in list_at(event, "errors")[:8] if isinstance(each, str))
    text = text_at(event, "result") or errors or notes.synthetic
    lower = text[:8192].lower()
    if any(mark in lower for mark in UNKNOWN_SESSIONS):
        return Complaint(f"{SESSION_UNKNOWN}: {text}", USAGE_ERROR)
    if "already in use" in lower or "sandbox required but unavailable" in lower:
        return Complaint(text, USAGE_ERROR)
    if subtype.startswith("error_max_"):
        return Complaint(f"{subtype}: {text}", FAILED)
    kind = LIMIT if notes.limit else _judge(notes.error, text, count_at(event, "api_error_status"))
    said = [text or subtype or "no reason given", notes.limit, text_at(event, "terminal_reason")]
    return Complaint("the turn failed: " + "; ".join(part for part in said if part and part != "completed"), kind)


def _judge(error: str, text: str, status: Optional[int]) -> str:
    """The error's name where it is one of the known ones, except that a text may tell overload from a limit."""
    by_text = judge_refusal(text, status)
    if error == "rate_limit":
        return by_text if by_text == OVERLOAD else LIMIT
    named = {
        "authentication_failed": AUTH,
        "billing_error": LIMIT,
        "overloaded": OVERLOAD,
        "server_error": OVERLOAD,
    }
    return by_text if by_text != FAILED else named.get(error, FAILED)


def _usage(event: Dict[str, Any]) -> Tuple[Usage, Optional[Usage]]:
    """Usage of the run, and of the session where the CLI counts so; input includes what went through the cache."""
    usage = value_at(event, "usage")
    total_usd = amount_at(event, "total_cost_usd")
    cached = count_at(usage, "cache_read_input_tokens")
    parts = [count_at(usage, "input_tokens"), cached, count_at(usage, "cache_creation_input_tokens")]
    since = value_at(event, "model_usage_since_last_result")
    costs = [amount_at(each, "costUSD") for each in since.values()] if isinstance(since, dict) else None
    run = Usage(
        input_tokens=sum_known(*parts),
        cached_tokens=cached,
        output_tokens=count_at(usage, "output_tokens"),
        cost_usd=total_usd if costs is None else sum(cost for cost in costs if cost is not None),
    )
    return run, None if costs is None else Usage(cost_usd=total_usd)


def read_event(line: bytes) -> List[Event]:
    event = parse_object(line)
    if event is None:
        return notice_of(line)
    kind = text_at(event, "type")
    if kind in ("assistant", "user"):
        return message_events(event)
    if kind == "system":
        return _system_events(event)
    if kind == "rate_limit_event" and text_at(event, "rate_limit_info", "status") == "rejected":
        return [Event("error", "the account's limit is reached")]
    if kind == "result":
        return _end_events(event)
    return []


def _system_events(event: Dict[str, Any]) -> List[Event]:
    subtype = text_at(event, "subtype")
    if subtype == "api_retry":
        return [Event("notice", bounded(f"the request failed ({text_at(event, 'error')}) and is tried again"))]
    if subtype == "permission_denied":
        return [Event("notice", bounded("refused: " + text_at(event, "message")))]
    return []


def _end_events(event: Dict[str, Any]) -> List[Event]:
    usage, _ = _usage(event)
    failed = flag_at(event, "is_error") is not False
    errors = [text_at(event, "result"), *(each for each in list_at(event, "errors")[:8] if isinstance(each, str))]
    reason = "; ".join(each for each in errors if each) or text_at(event, "subtype")
    return [
        Event("usage", describe_usage(usage)),
        Event("end", bounded(f"failed: {reason}") if failed else "completed"),
    ]
