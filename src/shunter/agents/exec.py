"""Any command as an agent: the prompt on stdin, the workspace as directory, its exit status as its word.

Exit status 0 is done when something changed and no_changes otherwise; any other is failed. A command that wants to say
more ends its output with a fenced `shunter-result` block. It has no session: each turn starts it anew.
"""

from __future__ import annotations

from typing import List, Tuple

from ..wire.errors import ShunterError
from .contract import CRASHED, DONE, FAILED, LOST, NO_CHANGES, Ended, Event, Launch, Outcome, Turn
from .options import check_options
from .result import find_block
from .stream import bounded, last_line, one_line
from .verdict import EVIDENCE_LIMIT_BYTES, decide_structured, describe_exit, has_changes

_UNKNOWN_OPTIONS = ("model", "effort", "session_id", "max_turns", "max_budget_usd")


def launch(turn: Turn) -> Launch:
    check_options("exec", turn, unknown=_UNKNOWN_OPTIONS)
    if not turn.command:
        raise ShunterError("AGENT_OPTION", "exec needs a command", hint="write it after the colon, as in exec:make")
    # It has no sandbox of its own, so whatever was asked for, this is what is in force.
    return Launch(argv=turn.command, env=dict(turn.env), permission="unattended")


def version_argv(command: Tuple[str, ...] = ()) -> Tuple[str, ...]:
    """Looks for the program instead of running it: what it would do is not known."""
    return ("sh", "-c", 'command -v -- "$0"', command[0] if command else "sh")


def sandbox_programs() -> Tuple[str, ...]:
    return ()


def prepare_prompt(text: str) -> str:
    return text


def find_outcome(ended: Ended) -> Outcome:
    if ended.exit_code == 0:
        result = find_block(ended.lines)
        if result is None:
            kind = DONE if has_changes(ended) else NO_CHANGES
            return Outcome(kind, f"exit status 0 and {'changes' if kind == DONE else 'no changes'}")
        kind, evidence = decide_structured(ended, result, has_tokens=False)
        return Outcome(kind, evidence, summary=result.summary, questions=result.questions, structured=True)
    kind = CRASHED if ended.signal is not None else LOST if ended.exit_code is None else FAILED
    said = last_line(ended.stderr_tail)
    evidence = f"{describe_exit(ended)}: {said}" if said else describe_exit(ended)
    return Outcome(kind, one_line(evidence, EVIDENCE_LIMIT_BYTES))


def read_event(line: bytes) -> List[Event]:
    return [Event("message", bounded(line[: 64 * 1024].decode("utf-8", "replace")))]
