"""Codex (`codex exec --json`); facts from runs of 0.171.0.

- `exec resume` has neither -s nor --add-dir: without `-c sandbox_mode` a resumed turn would be read-only.
- The workspace-write sandbox keeps `.git` read-only, so the git directory is named as writable; without that no commit.
- Options before `exec` hold for `exec` and `exec resume` too, so a configured command may end in `-c` and `-m` options.
- Without `analytics.enabled=false` every run ends five seconds late.
- Usage counts the whole thread, not the turn. There is no cost, and no option that limits turns or money.
- An item of type `error` is a warning; a failure is an `error` event that nothing follows, or `turn.failed`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..wire.messages import Usage
from .contract import AuthCheck, Ended, Event, Launch, Outcome, SessionRule, Turn
from .options import check_options
from .stream import (
    EVENTS_PER_LINE,
    bounded,
    count_at,
    list_at,
    notice_of,
    one_line,
    parse_object,
    text_at,
)
from .usage import describe_usage, usage_since
from .verdict import Seen, decide_outcome, events_of, failed_turn

_SANDBOX = {"workspace": "workspace-write", "unattended": "danger-full-access"}
_TOOLS = ("command_execution", "file_change", "mcp_tool_call", "web_search")
_SESSION = SessionRule(marker='"thread.started"', key="thread_id")


def launch(turn: Turn) -> Launch:
    check_options("codex", turn, unknown=("max_turns", "max_budget_usd"))
    resume = turn.session_id is not None
    argv = [*(turn.command or ("codex",)), "exec", *(["resume"] if resume else []), "--json"]
    argv += ["-c", "analytics.enabled=false"]
    argv += _resume_sandbox(turn.permission) if resume else _first_sandbox(turn.permission)
    if turn.model is not None:
        argv += ["-m", turn.model]
    if turn.effort is not None:
        argv += ["-c", f'model_reasoning_effort="{turn.effort}"']
    argv += ["--output-schema", "{schema}", "-o", "{last_message}"]
    if turn.session_id is not None:
        argv.append(turn.session_id)
    argv.append("-")
    return Launch(
        argv=tuple(argv),
        env=dict(turn.env),
        session=_SESSION,
        session_id=turn.session_id,
        wants_schema=True,
        permission=turn.permission,
    )


def _first_sandbox(permission: str) -> List[str]:
    mode = ["-s", _SANDBOX[permission]]
    return [*mode, "--add-dir", "{git_dir}"] if permission == "workspace" else mode


def _resume_sandbox(permission: str) -> List[str]:
    mode = ["-c", f'sandbox_mode="{_SANDBOX[permission]}"']
    roots = ["-c", 'sandbox_workspace_write.writable_roots=["{git_dir}"]']
    return mode + roots if permission == "workspace" else mode


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return (*(command or ("codex",)), "--version")


def auth_check() -> Optional[AuthCheck]:
    """It looks at the stored login only."""
    return AuthCheck(("login", "status"), ("CODEX_API_KEY",), "codex login")


def sandbox_programs() -> Tuple[str, ...]:
    """Programs that a host must have for permission `workspace`: none, Codex brings its own."""
    return ()


def prepare_prompt(text: str) -> str:
    """Codex takes stdin as it is: no slash commands, and `-` at the beginning means nothing."""
    return text


def find_outcome(ended: Ended) -> Outcome:
    seen = Seen()
    for event in events_of(ended, seen):
        _see(seen, event)
    seen.hand_in(ended.last_message or seen.final_text)
    seen.usage = usage_since(seen.session_usage, ended.previous_usage)
    return decide_outcome(ended, seen)


def _see(seen: Seen, event: Dict[str, Any]) -> None:
    kind = text_at(event, "type")
    if kind == "thread.started":
        seen.session_id = bounded(text_at(event, "thread_id"), 128) or None
    elif kind == "turn.started":
        seen.ended_well = seen.complaint = None
    elif kind == "turn.completed":
        seen.ended_well, seen.complaint = True, None
        seen.session_usage = _usage(event)
    elif kind == "turn.failed":
        seen.ended_well = False
        seen.complaint = failed_turn(text_at(event, "error", "message")) or seen.complaint
    elif kind == "error":
        seen.ended_well = None
        seen.complaint = failed_turn(text_at(event, "message")) or seen.complaint
    elif kind in ("item.started", "item.updated", "item.completed"):
        item = text_at(event, "item", "type")
        if item != "error":
            seen.complaint = None  # it went on after all
        if item in _TOOLS and kind == ("item.completed" if item == "web_search" else "item.started"):
            seen.tool_calls += 1
        if kind == "item.completed" and item == "agent_message":
            seen.final_text = text_at(event, "item", "text")
    else:
        return
    seen.events += 1


def _usage(event: Dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=count_at(event, "usage", "input_tokens"),
        cached_tokens=count_at(event, "usage", "cached_input_tokens"),
        output_tokens=count_at(event, "usage", "output_tokens"),
    )


def read_event(line: bytes) -> List[Event]:
    event = parse_object(line)
    if event is None:
        return notice_of(line)
    kind = text_at(event, "type")
    if kind in ("item.started", "item.completed"):
        return _item_events(event, finished=kind == "item.completed")[:EVENTS_PER_LINE]
    if kind == "error":
        text = text_at(event, "message")
        return [Event("notice" if text.startswith("Reconnecting") else "error", bounded(text))]
    if kind == "turn.completed":
        return [Event("usage", f"session: {describe_usage(_usage(event))}"), Event("end", "completed")]
    if kind == "turn.failed":
        return [Event("end", bounded("failed: " + text_at(event, "error", "message")))]
    return []


def _item_events(event: Dict[str, Any], *, finished: bool) -> List[Event]:
    """A command is shown when it starts (its text) and when it ends (its output and exit code)."""
    kind = text_at(event, "item", "type")
    if kind == "command_execution":
        if not finished:
            return [Event("command", bounded(text_at(event, "item", "command")))]
        output = bounded(text_at(event, "item", "aggregated_output").rstrip("\n"))
        return [Event("command", output, exit_code=count_at(event, "item", "exit_code"))]
    if not finished:
        return []
    if kind == "file_change":
        changes = list_at(event, "item", "changes")[:EVENTS_PER_LINE]
        return [Event("file", bounded(text_at(each, "kind")), path=bounded(text_at(each, "path"))) for each in changes]
    if kind == "mcp_tool_call":
        return [Event("tool", one_line(f"{text_at(event, 'item', 'server')}.{text_at(event, 'item', 'tool')}", 4096))]
    if kind == "web_search":
        return [Event("tool", bounded("web search: " + text_at(event, "item", "query")))]
    shown = {"agent_message": ("message", "text"), "reasoning": ("thinking", "text"), "error": ("notice", "message")}
    if kind in shown:
        name, key = shown[kind]
        return [Event(name, bounded(text_at(event, "item", key)))]
    return []
