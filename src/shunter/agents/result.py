"""The structured result that an agent hands in at the end of a turn (T11).

Agents with a schema option get `SCHEMA`; it keeps to the subset that strict providers accept (every property required,
no additional ones, no lengths). Everything else may end its output with the same object in a fenced block:

    ```shunter-result
    {"status": "needs_input", "summary": "…", "questions": [{"text": "…", "options": ["a", "b"]}], "files_changed": []}
    ```

A malformed result is no result, and neither is a `done` that its message does not end with: it may be quoted, or taken
back. Nothing here raises, and what is too long is cut. What models write by themselves is let pass where it can mean
one thing only: a question that is a text without options, options that are numbers.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from ..wire.messages import Question
from ..wire.record import dataclass
from .contract import BLOCKED, DONE, NEEDS_INPUT
from .stream import bounded, parse_object

SUMMARY_LIMIT_BYTES = 8 * 1024
QUESTION_LIMIT_BYTES = 2 * 1024
QUESTIONS_LIMIT = 32
PATHS_LIMIT = 10_000
BLOCK_LIMIT_BYTES = 256 * 1024
_MARK_BYTES = 256  # of a line, to tell whether it is a fence
_OPENING = re.compile(rb" {0,3}(`{3,})[ \t]*shunter-result(?![\w-])")
_CLOSING = re.compile(rb" {0,3}(`{3,})[ \t\r]*\Z")

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


def read_result(text: str) -> Tuple[bool, Optional[Result]]:
    """Whether a message was to bring a result, and the result: it is the object, or a block in it."""
    whole = parse_object(text)
    if whole is not None:
        return "status" in whole, parse_result(whole)
    blocks = Blocks()
    for line in text.split("\n"):
        blocks.take(line.encode("utf-8", "replace"))
    result = blocks.result
    if blocks.is_followed and result is not None and result.status == DONE:
        return True, None  # what follows may take it back; a question stays one
    return blocks.tried, result


class Blocks:
    """Finds the last `shunter-result` block in lines. A fence begins its line, as in Markdown: three blanks at most.

    The result is None when the last block is malformed, too long or not closed.
    """

    def __init__(self) -> None:
        self.tried = False  # there is a block, or the beginning of one
        self.result: Optional[Result] = None
        self.is_followed = False  # by a line that is not blank
        self.is_open = False
        self._fence = 0
        self._lines: List[bytes] = []
        self._size = 0

    @property
    def has_begun(self) -> bool:
        """The line taken last opened a block."""
        return self.is_open and not self._lines

    def take(self, line: bytes) -> bool:
        """True when the line is part of a block."""
        if self._open(line):
            return True
        if not self.is_open:
            self.is_followed = self.is_followed or bool(line.strip())
            return False
        closing = _CLOSING.match(line) if len(line) <= _MARK_BYTES else None
        if closing is not None and len(closing[1]) >= self._fence:
            self.result = parse_result(parse_object(b"\n".join(self._lines)))
            self.is_open = False
            return True
        self._size += len(line) + 1
        self._lines.append(line)
        self.is_open = self._size <= BLOCK_LIMIT_BYTES
        return self.is_open

    def _open(self, line: bytes) -> bool:
        opening = _OPENING.match(line[:_MARK_BYTES])
        if opening is None:
            return False
        # Behind the word stand at most other words. What has more in its line was meant for a block and is none; what
        # is closed in its line is one that the text speaks of, unless it holds an object.
        rest = line[opening.end() : opening.end() + BLOCK_LIMIT_BYTES]
        if b"`" in rest and b"{" not in rest:
            return False
        self.tried, self.result, self.is_followed = True, None, False
        self.is_open = b"{" not in rest
        self._fence, self._lines, self._size = len(opening[1]), [], 0
        return True
