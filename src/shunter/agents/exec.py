"""Any command as an agent: the prompt on stdin, the workspace as directory, its exit status as its word.

Exit status 0 is done when something changed and no_changes otherwise; any other is failed. A command that wants to say
more ends its output with a fenced `shunter-result` block, or writes the result to the file {last_message}.

An entry of the configuration may tell more of it: `resume` is the command line for follow-ups, where {session_id} is
the session; `fields` says where its JSON lines hold what (dotted paths), and then its errors are judged like any
agent's. Without `resume` each turn starts the command anew.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..wire.errors import ShunterError
from ..wire.messages import Usage
from .contract import (
    CRASHED,
    DONE,
    FAILED,
    LOST,
    NO_CHANGES,
    UNKNOWN,
    AuthCheck,
    Ended,
    Event,
    Launch,
    Outcome,
    SessionRule,
    Turn,
)
from .options import fill_command, find_program_argv
from .resets import limit_of
from .result import Result, read_block, read_result
from .stream import amount_at, bounded, count_at, last_line, one_line, parse_object, parse_objects, text_at
from .verdict import (
    EVIDENCE_LIMIT_BYTES,
    Complaint,
    Seen,
    decide_structured,
    describe_exit,
    has_changes,
    judge_complaint,
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
    seen = _read(ended) if ended.fields else Seen()
    tried, result = _result(ended, seen) if ended.exit_code == 0 else (False, None)
    if result is not None:
        kind, evidence = decide_structured(ended, result, has_tokens=bool(seen.usage.output_tokens))
    elif seen.complaint is not None:
        kind, evidence = judge_complaint(seen.complaint)
    elif tried:
        kind, evidence = UNKNOWN, "exit status 0, but its structured result cannot be read"
    elif ended.exit_code == 0:
        kind = DONE if has_changes(ended) else NO_CHANGES
        evidence = f"exit status 0 and {'changes' if kind == DONE else 'no changes'}"
    else:
        kind = CRASHED if ended.signal is not None else LOST if ended.exit_code is None else FAILED
        said = last_line(ended.stderr_tail)
        evidence = f"{describe_exit(ended)}: {said}" if said else describe_exit(ended)
    return Outcome(
        kind,
        one_line(evidence, EVIDENCE_LIMIT_BYTES),
        summary=result.summary if result else bounded(seen.final_text),
        questions=result.questions if result else (),
        usage=seen.usage,
        session_id=seen.session_id,
        limit=limit_of(kind, evidence, ended),
        structured=result is not None,
        tool_calls=seen.tool_calls if any(name in ended.fields for name in _CALLS) else None,
    )


def _result(ended: Ended, seen: Seen) -> Tuple[bool, Optional[Result]]:
    """Of the result file, else of the last message, else of the output; and whether the command meant to give one."""
    if ended.last_message is None and not ended.fields:
        return read_block(ended.lines)
    return read_result(seen.final_text if ended.last_message is None else ended.last_message)


def _read(ended: Ended) -> Seen:
    """The last message, error, session and token use of a command that tells them in JSON lines."""
    seen = Seen()
    fields = {name: tuple(path.split(".")) for name, path in ended.fields.items()}
    used: Dict[str, Any] = {}
    for event in parse_objects(ended.lines):
        seen.events += 1
        error, message = _text(event, fields, "error"), _text(event, fields, "message")
        if error:
            seen.complaint = Complaint(error)
        elif any(_text(event, fields, name) for name in SHOWN_FIELDS):
            seen.complaint = None  # it went on after all
        seen.tool_calls += any(_text(event, fields, name) for name in _CALLS)
        seen.final_text = message or seen.final_text
        seen.session_id = _text(event, fields, "session") or seen.session_id
        for name, read in _COUNTS.items():
            found = read(event, *fields[name]) if name in fields else None
            used[name] = used.get(name) if found is None else found
    seen.usage = Usage(**used)
    return seen


_COUNTS = {"input_tokens": count_at, "cached_tokens": count_at, "output_tokens": count_at, "cost_usd": amount_at}


def _text(event: Dict[str, Any], fields: Mapping[str, Tuple[str, ...]], name: str) -> str:
    return text_at(event, *fields[name]) if name in fields else ""


def read_event(line: bytes, fields: Mapping[str, str] = {}) -> List[Event]:
    event = parse_object(line) if fields else None
    if event is None:
        return [Event("message", bounded(line[: 64 * 1024].decode("utf-8", "replace")))]
    paths = {name: tuple(path.split(".")) for name, path in fields.items()}
    exit_code = count_at(event, *paths["exit_code"]) if "exit_code" in paths else None
    shown = ((name, _text(event, paths, name)) for name in SHOWN_FIELDS)
    return [
        Event(name, "" if name == "file" else bounded(text), exit_code, path=bounded(text) if name == "file" else None)
        for name, text in shown
        if text
    ]
