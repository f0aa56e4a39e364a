"""How a call of an agent's tool is shown; the names differ from agent to agent, what they do hardly."""

from __future__ import annotations

from typing import Any

from .contract import Event
from .stream import bounded, list_at, one_line, text_at

_SHELLS = {"bash", "shell", "run_shell_command"}
_WRITERS = {
    *("write", "edit", "multiedit", "notebookedit"),  # Claude Code, OpenCode, Qwen
    *("write_file", "replace", "create", "delete", "patch", "apply_patch"),  # Gemini, Qwen, Copilot, Cursor, OpenCode
}
# Headless, nobody answers these. Most agents switch them off; a server's tool or a newer version may bring one back.
_ASKERS = {
    *(
        "askuserquestion",
        "ask_user_question",
        "ask_user",
        "ask_followup_question",
    ),  # Claude Code, Qwen, Copilot, Gemini
    *("question", "request_user_input", "askquestion"),  # OpenCode, Codex, Cursor
}
_PATHS = ("file_path", "filePath", "path", "notebook_path", "absolute_path")
_ABOUT = ("pattern", "description", "query", "url")


def tool_event(name: str, given: Any) -> Event:
    """`given` is what the tool was called with."""
    word = name.lower()
    path = path_of(given)
    if word in _ASKERS:
        return Event("prompt", one_line(_question_of(given) or name, 4096))
    if word in _SHELLS:
        return Event("command", bounded(text_at(given, "command")))
    if word in _WRITERS:
        return Event("file", bounded(word), path=bounded(path))
    about = path or next((text for text in (text_at(given, key) for key in _ABOUT) if text), "")
    return Event("tool", one_line(f"{name} {about}".rstrip(), 4096))


def _question_of(given: Any) -> str:
    first = next(iter(list_at(given, "questions")), None)
    return next((text for text in (text_at(each, "question") for each in (given, first)) if text), "")


def path_of(given: Any) -> str:
    return next((text for text in (text_at(given, key) for key in _PATHS) if text), "")
