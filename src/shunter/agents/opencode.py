"""OpenCode (`opencode run --format json`); facts from runs of 1.18.33.

- A session is looked up by directory: from another one a resumed turn hangs and prints nothing. Its own workspace is
  where shunter resumes it.
- No sandbox. Without `--auto` a tool that wants to be asked about is refused and ends the turn with exit status 0.
- There is no final event: the last `step_finish` has the reason `stop`. A stream of the provider that is cut in the
  middle is asked for again at once and for ever; a hung provider prints nothing at all. Only a time limit ends those.
- An `error` event comes after all retries. Usage is told per step, without the request for a title.
- Two first starts at once in a new home have failed with "database is locked".
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..wire.messages import Usage
from .contract import FAILED, AuthCheck, Ended, Event, Launch, Outcome, SessionRule, Turn
from .options import check_options
from .prompt import ask_for_result
from .stream import Words, amount_at, bounded, count_at, notice_of, parse_object, text_at, value_at
from .tools import tool_event
from .usage import describe_usage, sum_known
from .verdict import Complaint, Seen, decide_outcome, events_of, judge_refusal

_QUIET = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_SHARE": "1"}


def launch(turn: Turn) -> Launch:
    check_options("opencode", turn, unknown=("max_turns", "max_budget_usd"))
    argv = [*(turn.command or ("opencode",)), "run", "--format", "json", "--auto"]
    if turn.session_id is not None:
        argv += ["--session", turn.session_id]
    if turn.model is not None:
        argv += ["--model", turn.model]
    if turn.effort is not None:
        argv += ["--variant", turn.effort]
    return Launch(
        argv=tuple(argv),
        env={**_QUIET, **turn.env},
        session=SessionRule(marker='"sessionID"', key="sessionID"),
        session_id=turn.session_id,
        permission="unattended",
    )


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return (*(command or ("opencode",)), "--version")


def auth_check() -> Optional[AuthCheck]:
    """`opencode auth list` ends with status 0 in any case."""
    return None


def sandbox_programs() -> Tuple[str, ...]:
    return ()


def prepare_prompt(text: str) -> str:
    return ask_for_result(text)


def find_outcome(ended: Ended) -> Outcome:
    seen = Seen()
    words, steps = Words(), _Steps()
    for event in events_of(ended, seen, words):
        _see(seen, words, steps, event)
    seen.final_text = words.last()
    seen.hand_in(seen.final_text)
    seen.usage = steps.usage()
    return decide_outcome(ended, seen)


class _Steps:
    """What all steps used together; a figure that no step told is None."""

    def __init__(self) -> None:
        self.input: Optional[int] = None
        self.cached: Optional[int] = None
        self.output: Optional[int] = None
        self.cost_usd: Optional[float] = None

    def add(self, event: Dict[str, Any]) -> None:
        tokens = value_at(event, "part", "tokens")
        cached = count_at(tokens, "cache", "read")
        self.input = sum_known(self.input, count_at(tokens, "input"), cached, count_at(tokens, "cache", "write"))
        self.cached = sum_known(self.cached, cached)
        self.output = sum_known(self.output, count_at(tokens, "output"), count_at(tokens, "reasoning"))
        cost_usd = amount_at(event, "part", "cost")
        if cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost_usd

    def usage(self) -> Usage:
        return Usage(self.input, self.cached, self.output, self.cost_usd)


def _see(seen: Seen, words: Words, steps: _Steps, event: Dict[str, Any]) -> None:
    kind = text_at(event, "type")
    if kind == "step_start":
        seen.ended_well = seen.complaint = None
    elif kind == "text":
        seen.complaint = None
        words.say(text_at(event, "part", "text"), of=text_at(event, "part", "messageID"))
    elif kind == "tool_use":
        seen.tool_calls += 1
        refused = "rejected permission" in text_at(event, "part", "state", "error")[:1024]
        seen.complaint = Complaint(text_at(event, "part", "state", "error"), FAILED) if refused else None
    elif kind == "step_finish":
        steps.add(event)
        seen.ended_well = True if text_at(event, "part", "reason") == "stop" else None
    elif kind == "error":
        seen.ended_well, seen.complaint = False, _complaint(event)
    else:
        return
    seen.events += 1
    seen.session_id = bounded(text_at(event, "sessionID"), 128) or seen.session_id


def _complaint(event: Dict[str, Any]) -> Complaint:
    data = value_at(event, "error", "data")
    name, text, body = text_at(event, "error", "name"), text_at(data, "message"), text_at(data, "responseBody")
    status = count_at(data, "statusCode")
    after = text_at(data, "responseHeaders", "retry-after")
    said = f"the turn failed: {text or name or 'no reason given'}"
    kind = judge_refusal(f"{text[:2048]} {body}", status)
    return Complaint(f"{said}; retry-after: {after}" if after else said, kind)


def read_event(line: bytes) -> List[Event]:
    event = parse_object(line)
    if event is None:
        return notice_of(line)
    kind = text_at(event, "type")
    if kind == "text":
        return [Event("message", bounded(text_at(event, "part", "text")))]
    if kind == "reasoning":
        return [Event("thinking", bounded(text_at(event, "part", "text")))]
    if kind == "tool_use":
        return _tool_events(value_at(event, "part"))
    if kind == "step_finish":
        return _step_events(event)
    if kind == "error":
        return [Event("error", bounded(_complaint(event).text))]
    return []


def _tool_events(part: Any) -> List[Event]:
    """A tool is told when it has finished, so its call and what came of it are one line."""
    call = tool_event(text_at(part, "tool"), value_at(part, "state", "input"))
    failed = text_at(part, "state", "error")
    exit_code = count_at(part, "state", "metadata", "exit")
    if call.kind != "command" or exit_code is None:
        return [call, Event("tool", bounded(failed))] if failed else [call]
    return [call, Event("command", bounded(text_at(part, "state", "output").rstrip("\n")), exit_code=exit_code)]


def _step_events(event: Dict[str, Any]) -> List[Event]:
    steps = _Steps()
    steps.add(event)
    told = describe_usage(steps.usage())
    if text_at(event, "part", "reason") != "stop":
        return [Event("usage", told)]
    return [Event("usage", told), Event("end", "completed")]
