"""Events that carry messages in Anthropic's form, as Claude Code, Qwen Code and Cursor print them."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from .contract import Event
from .stream import EVENTS_PER_LINE, bounded, flag_at, list_at, text_at, value_at
from .tools import tool_event

_RESULT_TOOLS = ("StructuredOutput", "structured_output")
_RESULT_TAKEN = ("Structured output provided successfully", "Structured output accepted.")
_EXIT_CODE = re.compile(r"Exit code (\d{1,3})\b")


def message_text(event: Dict[str, Any], between: str = "\n") -> str:
    return between.join(text_at(part, "text") for part in list_at(event, "message", "content"))


def count_tool_calls(event: Dict[str, Any]) -> int:
    """Of a message by the agent; handing in the result is none."""
    parts = list_at(event, "message", "content")
    return sum(text_at(each, "type") == "tool_use" and text_at(each, "name") not in _RESULT_TOOLS for each in parts)


def message_events(event: Dict[str, Any]) -> List[Event]:
    """Of a message by the agent, or of one to it that brings what its tools gave."""
    parts = list_at(event, "message", "content")[:EVENTS_PER_LINE]
    shown = _part_events if text_at(event, "type") == "assistant" else _tool_result_events
    return [each for part in parts for each in shown(part)]


def _part_events(part: Any) -> List[Event]:
    kind = text_at(part, "type")
    if kind == "text":
        return [Event("message", bounded(text_at(part, "text")))]
    if kind == "thinking":
        return [Event("thinking", bounded(text_at(part, "thinking")))]
    name = text_at(part, "name")
    if kind != "tool_use" or name in _RESULT_TOOLS:
        return []
    return [tool_event(name, value_at(part, "input"))]


def _tool_result_events(part: Any) -> List[Event]:
    """A tool's output; which tool it was, the line does not tell. Only a failing command tells its exit code."""
    if text_at(part, "type") != "tool_result":
        return []
    content = value_at(part, "content")
    if isinstance(content, list):
        content = "\n".join(text_at(each, "text") for each in content)
    text = content if isinstance(content, str) else ""
    if text in _RESULT_TAKEN:
        return []
    code = _EXIT_CODE.match(text) if flag_at(part, "is_error") else None
    return [Event("tool", bounded(text), exit_code=int(code.group(1)) if code else None)]
