"""Any command as an agent: the prompt on stdin, the workspace as directory, its exit status as its word.

Exit status 0 is done when something changed and no_changes otherwise; any other is failed. A command that wants to say
more ends its output with a fenced `shunter-result` block, or writes the result to the file {last_message}. The last
block counts, and the file before any block; what was meant for a result and is none, or was lost, makes `unknown`.

An entry of the configuration may tell more of it: `resume` is the command line for follow-ups, where {session_id} is
the session; `fields` says where its JSON lines hold what (dotted paths), and then its errors are judged like any
agent's. Without `resume` each turn starts the command anew.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..wire.errors import ShunterError
from ..wire.messages import Question, Usage
from .contract import (
    CRASHED,
    DONE,
    FAILED,
    LOST,
    NEEDS_INPUT,
    NO_CHANGES,
    UNKNOWN,
    AuthCheck,
    Ended,
    Event,
    Gap,
    Launch,
    Outcome,
    SessionRule,
    Turn,
)
from .options import fill_command, find_program_argv
from .result import QUESTION_LIMIT_BYTES, Blocks, Result, parse_result, read_result
from .stream import (
    LINE_LIMIT_BYTES,
    amount_at,
    bounded,
    count_at,
    one_line,
    parse_object,
    telling_line,
    text_at,
    value_at,
)
from .verdict import (
    EVIDENCE_LIMIT_BYTES,
    UNREADABLE,
    Complaint,
    Seen,
    decide_structured,
    describe_exit,
    describe_loss,
    has_changes,
    judge_complaint,
    limit_of,
)

# What `fields` may name; the first group is shown in the logs as events of that kind.
SHOWN_FIELDS = ("message", "thinking", "tool", "command", "file", "prompt", "notice", "error")
FIELDS = (*SHOWN_FIELDS, "session", "exit_code", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")
_CALLS = ("tool", "command", "file")  # without a field for any of them nobody can tell what the command did


def launch(turn: Turn) -> Launch:
    if not turn.command:
        raise ShunterError("AGENT_OPTION", "exec needs a command", hint="write it after the colon, as in exec:make")
    resumes = turn.session_id is not None and bool(turn.resume)
    words = turn.resume if resumes else turn.command
    argv = fill_command("exec", turn, words, session_id=turn.session_id if resumes else None)
    path = turn.fields.get("session", "")
    key = path.rpartition(".")[2]
    return Launch(
        argv=argv,
        env=dict(turn.env),
        session=SessionRule(marker=f'"{key}"', key=key) if key else None,
        session_id=turn.session_id if resumes else None,
        # It has no sandbox of its own, so whatever was asked for, this is what is in force.
        permission="unattended",
    )


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return find_program_argv(command)


def auth_check() -> Optional[AuthCheck]:
    return None


def sandbox_programs() -> Tuple[str, ...]:
    return ()


def prepare_prompt(text: str) -> str:
    return text


def find_outcome(ended: Ended) -> Outcome:
    told = _Told(ended)
    seen = told.seen
    kind, evidence, result = _judge(ended, told)
    return Outcome(
        kind,
        one_line(evidence, EVIDENCE_LIMIT_BYTES),
        summary=result.summary if result else bounded(seen.final_text),
        questions=result.questions if result else told.questions() if kind == NEEDS_INPUT else (),
        usage=seen.usage,
        session_id=seen.session_id,
        limit=limit_of(kind, evidence, ended),
        structured=result is not None,
        tool_calls=seen.tool_calls if any(name in ended.fields for name in _CALLS) else None,
    )


def _judge(ended: Ended, told: _Told) -> Tuple[str, str, Optional[Result]]:
    """Kind and evidence, and the structured result when it is that which decides."""
    seen = told.seen
    if seen.complaint is not None:
        return (*judge_complaint(seen.complaint), None)
    if ended.exit_code != 0:
        kind = CRASHED if ended.signal is not None else LOST if ended.exit_code is None else FAILED
        said = telling_line(ended.stderr_tail)
        return kind, f"{describe_exit(ended)}: {said}" if said else describe_exit(ended), None
    tried, result, is_lost = seen.tried, seen.result, seen.lost
    if ended.last_message is not None:
        tried, result, is_lost = True, read_result(ended.last_message)[1], False
    if told.asked and (result is None or result.status == DONE):
        return NEEDS_INPUT, "exit status 0, and the last that it told is a question", None
    if result is not None:
        return (*decide_structured(ended, result, has_tokens=bool(seen.usage.output_tokens)), result)
    if tried:
        return UNKNOWN, UNREADABLE, None
    if is_lost:
        return UNKNOWN, describe_loss(ended), None
    if told.has_unread:
        return UNKNOWN, "exit status 0, but its last event is too long to be read", None
    kind = DONE if has_changes(ended) else NO_CHANGES
    return kind, f"exit status 0 and {'changes' if kind == DONE else 'no changes'}", None


class _Told:
    """What the output told: the last block, and of JSON lines the last message, error, question, session and token use.

    A block may stand in a message or in plain lines between the events. A message, a call or a block behind an error or
    a question shows that the command went on; a notice does not.
    """

    def __init__(self, ended: Ended) -> None:
        self.seen = Seen()
        self.asked = ""
        self.has_unread = False
        self._fields = _paths_of(ended.fields)
        self._used: Dict[str, Any] = {}
        self._blocks = Blocks()
        self._held: List[bytes] = []  # lines of the open block: lines like all others, should it be none
        for line in ended.lines:
            self._take(line)
        self._release()
        self.seen.usage = Usage(**self._used)

    def questions(self) -> Tuple[Question, ...]:
        return (Question(bounded(self.asked, QUESTION_LIMIT_BYTES)),)

    def _take(self, line: bytes) -> None:
        blocks = self._blocks
        if isinstance(line, Gap):
            self._release()
            self._blocks, self.asked, self.has_unread = Blocks(), "", False
            self.seen.lose()
        elif not blocks.take(line):
            self._release()
            self._read(line)
        elif blocks.result is not None:
            self._held = []
            self._hand_in(blocks.result)
        else:
            self.seen.tried, self.seen.result = True, None
            if not blocks.is_open or blocks.has_begun:
                self._release()
            if blocks.is_open:
                self._held.append(line)

    def _release(self) -> None:
        held, self._held = self._held, []
        for line in held:
            self._read(line)

    def _hand_in(self, result: Result) -> None:
        self.seen.tried, self.seen.result = True, result
        self.seen.complaint, self.asked = None, ""

    def _read(self, line: bytes) -> None:
        event = parse_object(line) if self._fields else None
        if event is not None:
            self._see(event)
        elif self._fields and len(line) > LINE_LIMIT_BYTES and line[:64].lstrip().startswith(b"{"):
            self.has_unread = True

    def _see(self, event: Dict[str, Any]) -> None:
        seen, shown = self.seen, dict(_shown(event, self._fields))
        if shown.keys() - {"notice", "error"}:
            seen.complaint, self.asked, self.has_unread = None, "", False  # it went on after all
        if "message" in shown:
            seen.final_text = shown["message"]
            tried, result = read_result(seen.final_text)
            if result is not None:
                self._hand_in(result)
            elif tried:
                seen.tried, seen.result = True, None
        self.asked = shown.get("prompt", self.asked)
        seen.complaint = Complaint(shown["error"]) if "error" in shown else seen.complaint
        seen.tool_calls += any(name in shown for name in _CALLS)
        if "session" in self._fields:
            seen.session_id = text_at(event, *self._fields["session"]) or seen.session_id
        for name, read in _COUNTS.items():
            found = read(event, *self._fields[name]) if name in self._fields else None
            self._used[name] = self._used.get(name) if found is None else found


_COUNTS = {"input_tokens": count_at, "cached_tokens": count_at, "output_tokens": count_at, "cost_usd": amount_at}


def _paths_of(fields: Mapping[str, str]) -> Dict[str, Tuple[str, ...]]:
    return {name: tuple(path.split(".")) for name, path in fields.items()}


def _shown(event: Dict[str, Any], paths: Mapping[str, Tuple[str, ...]]) -> Iterator[Tuple[str, str]]:
    """What an event tells, by the names of the fields; a field that is empty is not there."""
    for name in SHOWN_FIELDS:
        if name in paths:
            text = _error_text(event, paths[name]) if name == "error" else text_at(event, *paths[name])
            if text:
                yield name, text


def _error_text(event: Dict[str, Any], path: Tuple[str, ...]) -> str:
    """An error is one whatever its form; a null, false or empty one is none."""
    value = value_at(event, *path)
    if isinstance(value, str):
        return value.strip()
    try:
        return bounded(json.dumps(value)) if value else ""
    except RecursionError:
        return "an error of too many levels to be shown"


def read_event(line: bytes, fields: Mapping[str, str] = {}) -> List[Event]:
    event = parse_object(line) if fields else None
    if event is None:
        return [_said(line)]
    paths = _paths_of(fields)
    exit_code = count_at(event, *paths["exit_code"]) if "exit_code" in paths else None
    shown = [
        Event(name, "" if name == "file" else bounded(text), exit_code, path=bounded(text) if name == "file" else None)
        for name, text in _shown(event, paths)
    ]
    return [_said(line)] if not shown and parse_result(event) is not None else shown


def _said(line: bytes) -> Event:
    return Event("message", bounded(line[: 64 * 1024].decode("utf-8", "replace")))
