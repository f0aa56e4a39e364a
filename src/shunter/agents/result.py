"""The structured result that an agent hands in at the end of a turn (T11).

Agents with a schema option get `SCHEMA`; it keeps to the subset that strict providers accept (every property required,
no additional ones, no lengths). Everything else may end its output with the same object in a fenced block:

    ```shunter-result
    {"status": "needs_input", "summary": "…", "questions": [{"text": "…", "options": ["a", "b"]}], "files_changed": []}
    ```

A malformed result is no result: nothing here raises, and what is too long is cut. What models write by themselves is
let pass where it can mean one thing only: a question that is a text without options, options that are numbers.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple

from ..wire.messages import Question
from ..wire.record import dataclass
from .contract import BLOCKED, DONE, NEEDS_INPUT
from .stream import bounded, parse_object

SUMMARY_LIMIT_BYTES = 8 * 1024
QUESTION_LIMIT_BYTES = 2 * 1024
QUESTIONS_LIMIT = 32
PATHS_LIMIT = 10_000
BLOCK_LIMIT_BYTES = 256 * 1024

SCHEMA: Dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {
            "type": "string",
            "enum": [DONE, NEEDS_INPUT, BLOCKED],
            "description": "done: the task is finished. needs_input: you need an answer from a person. "
            "blocked: you cannot go on and no answer would help.",
        },
        "summary": {"type": "string", "description": "What you did and found, for the person who gave the task."},
        "questions": {
            "type": "array",
            "description": "What you need to know; empty unless the status is needs_input.",
            "items": {
                "type": "object",
                "properties": {
                    "text": {"type": "string"},
                    "options": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Possible answers; empty when any answer will do.",
                    },
                },
                "required": ["text", "options"],
                "additionalProperties": False,
            },
        },
        "files_changed": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Paths you changed, relative to the repository.",
        },
    },
    "required": ["status", "summary", "questions", "files_changed"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class Result:
    """What the agent says of its own work; `files_changed` is its word, not what git saw."""

    status: str  # done, needs_input or blocked
    summary: str
    questions: Tuple[Question, ...] = ()
    files_changed: Tuple[str, ...] = ()


def parse_result(value: Any) -> Optional[Result]:
    """A result from plain JSON values. Status and summary must be there; unknown keys are let pass."""
    if not isinstance(value, dict) or value.get("status") not in (DONE, NEEDS_INPUT, BLOCKED):
        return None
    summary = value.get("summary")
    questions = _parse_questions(value.get("questions", []))
    files = value.get("files_changed", [])
    if not isinstance(summary, str) or questions is None:
        return None
    return Result(
        status=value["status"],
        summary=bounded(summary, SUMMARY_LIMIT_BYTES),
        questions=questions,
        files_changed=tuple(bounded(path) for path in files[:PATHS_LIMIT]) if _is_texts(files) else (),
    )


def _parse_questions(value: Any) -> Optional[Tuple[Question, ...]]:
    if not isinstance(value, list):
        return None
    questions: List[Question] = []
    for each in value:
        item = {"text": each} if isinstance(each, str) else each
        text = item.get("text", item.get("question")) if isinstance(item, dict) else None
        options = _options_of(item.get("options", [])) if isinstance(item, dict) else None
        if not isinstance(text, str) or options is None:
            return None
        questions.append(Question(bounded(text, QUESTION_LIMIT_BYTES), options[:QUESTIONS_LIMIT]))
    return tuple(questions[:QUESTIONS_LIMIT])


def _options_of(value: Any) -> Optional[Tuple[str, ...]]:
    if not isinstance(value, list) or any(isinstance(each, bool) for each in value):
        return None
    if not all(isinstance(each, (str, int, float)) for each in value):
        return None
    return tuple(bounded(str(each), QUESTION_LIMIT_BYTES) for each in value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def find_result(text: str) -> Optional[Result]:
    """The result in an agent's last message: the whole message is the object, or it holds a fenced block."""
    return read_result(text)[1]


def read_result(text: str) -> Tuple[bool, Optional[Result]]:
    """Whether the message was to bring a result, and the result."""
    whole = parse_object(text)
    if whole is not None:
        return "status" in whole, parse_result(whole)
    return read_block(line.encode("utf-8", "replace") for line in text.split("\n"))


def read_block(lines: Iterable[bytes]) -> Tuple[bool, Optional[Result]]:
    """Whether there is a `shunter-result` block, and the result in the last one.

    None when that is malformed, too long or not closed.
    """
    tried = False
    block: Optional[List[bytes]] = None
    size = 0
    result: Optional[Result] = None
    for line in lines:
        mark = line[:64].strip()
        if mark == b"```shunter-result":
            tried, block, size, result = True, [], 0, None
        elif block is not None and mark == b"```":
            if size <= BLOCK_LIMIT_BYTES:
                result = parse_result(parse_object(b"\n".join(block)))
            block = None
        elif block is not None:
            size += len(line) + 1
            if size <= BLOCK_LIMIT_BYTES:
                block.append(line)
    return tried, result
