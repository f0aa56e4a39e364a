"""Any agent that speaks the Agent Client Protocol, version 1; facts from runs of OpenCode, Gemini CLI, Qwen, Copilot.

What the host starts is our own client (`host/acp.py`), which starts the agent and prints one JSON object a line: the
agent's messages as they came, and lines of its own that have the key `shunter`, which no message of an agent has:

    {"shunter": "session", "sessionId": …}      the session is open; with `replayed`, so many old updates were left out
    {"shunter": "answer", "to": method, …}      how a request of the agent was answered, and why
    {"shunter": "noise", "text": …}             a line of the agent that is no message
    {"shunter": "cancel"}                       the turn was told to stop
    {"shunter": "end", "result": …}             the answer to session/prompt, with its stopReason
    {"shunter": "error", "during": …, …}        `error` of the protocol, or `text` of the client's own
    {"shunter": "missing", "program": …, …}     the agent could not be started

- A message comes in pieces; the client joins them into such as end where a line of the text does.
- A call of a tool is told before its input is known, again with it, and once more with what came of it.
- Token use is told with the end (OpenCode: of its last step only), in a message's `_meta` (Qwen), or nowhere. The cost
  in usage_update is the session's.
- No schema, no effort, no limit of turns or money, and no sandbox: what an agent does without asking is its own matter.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..wire.errors import ShunterError
from ..wire.messages import Usage
from ..wire.record import changed
from .consent import named_paths
from .contract import (
    AUTH,
    FAILED,
    LAUNCH_FAILED,
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
from .options import fill_command, find_program_argv
from .prompt import ask_for_result
from .stream import (
    EVENTS_PER_LINE,
    Words,
    amount_at,
    bounded,
    count_at,
    list_at,
    notice_of,
    one_line,
    parse_object,
    text_at,
    value_at,
)
from .usage import describe_usage, sum_known, usage_since
from .verdict import EVIDENCE_LIMIT_BYTES, Complaint, Seen, decide_outcome, events_of, judge_refusal

_START = "import sys;sys.path.insert(0,sys.argv.pop(1));from shunter.host.acp import main;main()"
_AUTH_REQUIRED = -32000
_STOPS = {
    "max_tokens": "the model reached its limit of tokens (max_tokens)",
    "max_turn_requests": "the agent reached its limit of requests in a turn (max_turn_requests)",
    "refusal": "the agent refused to go on (refusal)",
    "cancelled": "the agent says that the turn was cancelled",
}
_CHANGES = ("edit", "delete", "move")


def launch(turn: Turn) -> Launch:
    if not turn.command:
        raise ShunterError("AGENT_OPTION", "acp needs a command", hint="write it after the colon: 'acp:gemini --acp'")
    command = fill_command("acp", turn, turn.command)
    told = (turn.wish or turn.permission, turn.session_id or "")
    return Launch(
        argv=("{python}", "-I", "-S", "-c", _START, "{helper}", *told, *command),
        env=dict(turn.env),
        session=SessionRule(marker='"shunter":"session"', key="sessionId"),
        session_id=turn.session_id,
        permission="unattended",  # requests are answered, but nothing holds an agent back that does not ask
    )


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    return find_program_argv(command)


def auth_check() -> Optional[AuthCheck]:
    """The protocol has no such question."""
    return None


def sandbox_programs() -> Tuple[str, ...]:
    return ()


def prepare_prompt(text: str) -> str:
    return ask_for_result(text)


def find_outcome(ended: Ended) -> Outcome:
    seen, words, spent = Seen(), Words(), _Spent()
    own: Any = None
    for line in events_of(ended, seen, words):
        if "shunter" in line:
            _see_own(seen, spent, line)
            own = line["sessionId"] if text_at(line, "shunter") == "session" and "sessionId" in line else own
        elif text_at(line, "method") == "session/update":
            update, named = value_at(line, "params", "update"), value_at(line, "params", "sessionId")
            # What comes behind the answer, or in another session (of a helper, say), is no message of this turn.
            is_ours = seen.ended_well is None and (own is None or named in (None, own))
            _see_update(words if is_ours else Words(), spent, update)
            seen.tool_calls += text_at(update, "sessionUpdate") == "tool_call"
            seen.events += 1
    seen.final_text = words.last()
    seen.hand_in(seen.final_text)
    seen.session_usage = Usage(cost_usd=spent.cost_usd) if spent.cost_usd is not None else None
    told = usage_since(seen.session_usage, ended.previous_usage)
    seen.usage = Usage(spent.input, spent.cached, spent.output, told.cost_usd)
    outcome = decide_outcome(ended, seen)
    if outcome.kind != FAILED or seen.events or seen.complaint is not None:
        return outcome
    # Neither a session nor a word: it did not take its command line, or speaks another language.
    evidence = one_line(f"the agent ended before it opened a session: {outcome.evidence}", EVIDENCE_LIMIT_BYTES)
    return changed(outcome, kind=USAGE_ERROR, evidence=evidence)


class _Spent:
    """Tokens of the turn and money of the session; a figure that nobody told is None."""

    def __init__(self) -> None:
        self.input: Optional[int] = None
        self.cached: Optional[int] = None
        self.output: Optional[int] = None
        self.cost_usd: Optional[float] = None

    def add(self, usage: Usage) -> None:
        self.input = sum_known(self.input, usage.input_tokens)
        self.cached = sum_known(self.cached, usage.cached_tokens)
        self.output = sum_known(self.output, usage.output_tokens)

    def take(self, usage: Usage) -> None:
        """Of the whole turn, so it counts more than what single messages told."""
        if usage != Usage():
            self.input, self.cached, self.output = usage.input_tokens, usage.cached_tokens, usage.output_tokens


def _see_own(seen: Seen, spent: _Spent, line: Dict[str, Any]) -> None:
    kind = text_at(line, "shunter")
    if kind == "session":
        seen.session_id = bounded(text_at(line, "sessionId"), 128) or None
        seen.events += 1
    elif kind == "end":
        reason = text_at(line, "result", "stopReason")
        spent.take(_turn_usage(value_at(line, "result")))
        seen.ended_well = reason == "end_turn"
        said = _STOPS.get(reason) or f"the agent stopped for a reason that the protocol does not know: {reason!r}"
        seen.complaint = None if seen.ended_well else Complaint(said, FAILED)
    elif kind in ("error", "missing") and seen.ended_well is None:
        seen.ended_well = False
        seen.complaint = _missing(line) if kind == "missing" else _complaint(line)


def _missing(line: Dict[str, Any]) -> Complaint:
    said = f"the agent could not be started: {text_at(line, 'program')}: {text_at(line, 'text')}"
    return Complaint(said, LAUNCH_FAILED)


def _complaint(line: Dict[str, Any]) -> Complaint:
    during, error = text_at(line, "during"), value_at(line, "error")
    text = text_at(line, "text")
    if isinstance(error, str) and error.strip():
        error = {"message": error}
    unnamed = USAGE_ERROR if during == "initialize" else FAILED  # no agent, or one that refused to start
    if not isinstance(error, dict):
        kind = USAGE_ERROR if text.startswith(SESSION_UNKNOWN) else unnamed
        return Complaint(text or "the client gave no reason", kind)
    code = error.get("code")
    said = _words_of(error)
    kind = judge_refusal(said)
    if during == "session/load" and kind == FAILED and code != _AUTH_REQUIRED:
        # No code stands for it: Copilot says "resource not found", Gemini and OpenCode "internal error".
        return Complaint(f"{SESSION_UNKNOWN}: {said}", USAGE_ERROR)
    if code == _AUTH_REQUIRED and kind == FAILED:
        kind = AUTH
    return Complaint(f"{during} failed: {said}", unnamed if kind == FAILED else kind)


def _words_of(error: Dict[str, Any]) -> str:
    """Message and details; agents put what happened into either."""
    data = error.get("data")
    details = data if isinstance(data, str) else text_at(data, "details") or text_at(data, "message")
    message = text_at(error, "message")
    if not details or details in message:
        return message or "no reason given"
    return f"{message}: {details}"


def _see_update(words: Words, spent: _Spent, update: Any) -> None:
    kind = text_at(update, "sessionUpdate")
    if kind == "agent_message_chunk":
        text = text_at(update, "content", "text")
        if text:
            words.say(text, of=text_at(update, "messageId"))
        spent.add(_tokens(value_at(update, "_meta", "usage")))
    elif kind == "usage_update":
        if text_at(update, "cost", "currency") == "USD":
            spent.cost_usd = amount_at(update, "cost", "amount")
    elif kind in ("tool_call", "tool_call_update", "plan"):
        words.stop()


def _turn_usage(result: Any) -> Usage:
    told = _tokens(value_at(result, "usage"))
    if told != Usage():
        return told
    counted = value_at(result, "_meta", "quota", "token_count")  # Gemini
    return Usage(input_tokens=count_at(counted, "input_tokens"), output_tokens=count_at(counted, "output_tokens"))


def _tokens(usage: Any) -> Usage:
    """Some count cached input as input and some beside it; the total tells."""
    given, out, total = (count_at(usage, name) for name in ("inputTokens", "outputTokens", "totalTokens"))
    thought = count_at(usage, "thoughtTokens")
    made = sum_known(out, thought)
    if given is not None and out is not None and total is not None and total > given + out:
        given = max(given, total - out - (thought or 0))
    return Usage(input_tokens=given, cached_tokens=count_at(usage, "cachedReadTokens"), output_tokens=made)


def read_event(line: bytes) -> List[Event]:
    event = parse_object(line)
    if event is None:
        return notice_of(line)
    if "shunter" in event:
        return _own_events(event)
    if text_at(event, "method") == "session/update":
        return _update_events(value_at(event, "params", "update"))
    return []


def _own_events(line: Dict[str, Any]) -> List[Event]:
    kind = text_at(line, "shunter")
    if kind == "answer":
        about = f" {text_at(line, 'about')}" if text_at(line, "about") else ""
        said = f"{text_at(line, 'to')}{about}: {text_at(line, 'answer')} ({text_at(line, 'why')})"
        return [Event("notice", one_line(said, 4096))]
    if kind == "noise":
        return [Event("notice", bounded(text_at(line, "text")))]
    if kind == "cancel":
        return [Event("notice", "the agent is told to stop")]
    if kind == "error":
        return [Event("error", bounded(_complaint(line).text))]
    if kind == "missing":
        return [Event("error", bounded(_missing(line).text))]
    if kind == "end":
        usage, reason = _turn_usage(value_at(line, "result")), text_at(line, "result", "stopReason")
        told = [Event("usage", describe_usage(usage))] if usage != Usage() else []
        return [*told, Event("end", "completed" if reason == "end_turn" else bounded(f"stopped: {reason}"))]
    return []


def _update_events(update: Any) -> List[Event]:
    kind, text = text_at(update, "sessionUpdate"), text_at(update, "content", "text")
    if kind == "agent_message_chunk":
        used = _tokens(value_at(update, "_meta", "usage"))
        shown = [Event("message", bounded(text))] if text else []
        return shown if used == Usage() else [*shown, Event("usage", describe_usage(used))]
    if kind == "agent_thought_chunk":
        return [Event("thinking", bounded(text))] if text else []
    if kind == "tool_call":
        return _call_events(update)
    if kind == "tool_call_update":
        ended = text_at(update, "status") in ("completed", "failed")
        return _result_events(update) if ended else _call_events(update) if _is_first_told(update) else []
    if kind == "plan":
        steps = [text_at(each, "content") for each in list_at(update, "entries")[:EVENTS_PER_LINE]]
        return [Event("notice", one_line(f"plan: {'; '.join(steps)}", 4096))] if steps else []
    return []


def _is_first_told(update: Any) -> bool:
    """With the input and before any output."""
    return bool(value_at(update, "rawInput")) and not list_at(update, "content")


def _call_events(call: Any) -> List[Event]:
    """Nothing for a call whose input is announced and not known yet: it is told again."""
    given = value_at(call, "rawInput")
    if isinstance(given, dict) and not set(given) - {"cwd"} and text_at(call, "status") == "pending":
        return []
    kind, title = text_at(call, "kind"), text_at(call, "title")
    if kind == "execute":
        return [Event("command", bounded(_command(given) or title))]
    paths = named_paths(call)
    if kind in _CHANGES:
        return [Event("file", kind, path=bounded(path)) for path in paths[:EVENTS_PER_LINE]] or [Event("tool", title)]
    return [Event("tool", one_line(title or " ".join((kind, *paths[:1])), 4096))]


def _command(given: Any) -> str:
    """A text, or a vector whose last word is what a shell was given (Codex)."""
    command = value_at(given, "command")
    if isinstance(command, list):
        return next((word for word in reversed(command) if isinstance(word, str)), "")
    return command if isinstance(command, str) else ""


def _result_events(update: Any) -> List[Event]:
    output = "\n".join(text_at(each, "content", "text") for each in list_at(update, "content")[:EVENTS_PER_LINE])
    code = count_at(update, "rawOutput", "exit_code")
    code = count_at(update, "rawOutput", "metadata", "exit") if code is None else code
    failed = text_at(update, "status") == "failed"
    said = output.strip("\n") or (text_at(update, "rawOutput", "message") or "failed" if failed else "")
    if not said and code is None:
        return []
    return [Event("command" if code is not None else "tool", bounded(said), exit_code=code)]
