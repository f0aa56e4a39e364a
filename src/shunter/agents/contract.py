"""What an agent adapter is (T9-T12): a description without I/O.

An adapter module has these functions and nothing else public. `launch` is used at home to build what the host
will start; `read_event` renders logs at home; `find_outcome` runs in the publisher on the host. Nothing here opens a
file, reads the clock or looks at the environment; text from an agent is untrusted and never raises.

    launch(turn: Turn) -> Launch            raises AGENT_OPTION for an option the agent does not know
    read_event(line: bytes) -> list[Event]  one line of stdout, without its newline; [] when there is nothing to show
    find_outcome(ended: Ended) -> Outcome   what the end was, with the evidence
    version_argv(command) -> tuple          the cheap command that proves that the program is there
    auth_check() -> AuthCheck | None        how it is asked whether it is signed in; None: nobody can tell
"""

from __future__ import annotations

from datetime import tzinfo
from typing import Dict, Iterable, Optional, Tuple

from ..wire.messages import LimitNotice, Question, Usage
from ..wire.record import dataclass, field

# Outcome kinds. The first four are what an agent can say of its own work; the rest is what we saw.
DONE, NEEDS_INPUT, BLOCKED, UNKNOWN = "done", "needs_input", "blocked", "unknown"
NO_CHANGES, FAILED, LIMIT, AUTH, OVERLOAD = "no_changes", "failed", "limit", "auth", "overload"
CONTEXT_FULL, USAGE_ERROR, CRASHED, OOM = "context_full", "usage_error", "crashed", "oom"
TIMED_OUT, CANCELLED, LOST, LAUNCH_FAILED = "timed_out", "cancelled", "lost", "launch_failed"
SESSION_UNKNOWN = "session unknown"  # how the evidence of a usage_error begins whose session the agent does not have


@dataclass(frozen=True)
class Turn:
    """What a turn wants. The host fills in {workspace}, {git_dir}, {job}, {schema}, {last_message},
    {prompt_file} and {tmp} in argv and in the values of env with the paths of the attempt, {python} and {helper} with
    those of what runs it."""

    command: Tuple[str, ...] = ()  # configured program and leading arguments; () = the adapter's own default
    model: Optional[str] = None
    effort: Optional[str] = None
    session_id: Optional[str] = None  # resume this one; None = first turn
    new_session_id: str = ""  # a fresh UUID that the adapter may give to agents that let us choose
    permission: str = "workspace"  # workspace (the agent's own sandbox) or unattended
    wish: str = ""  # the permission that was asked for, also where nothing enforces it
    max_turns: Optional[int] = None
    max_budget_usd: Optional[float] = None
    env: Dict[str, str] = field(default_factory=dict)  # configured additions
    resume: Tuple[str, ...] = ()  # of a configured command: its command line for follow-ups
    fields: Dict[str, str] = field(default_factory=dict)  # likewise: where its JSON lines hold what


@dataclass(frozen=True)
class SessionRule:
    """How the supervisor finds the session id while the agent runs, by bytes alone (it has no JSON parser).

    In the first stdout line that holds `marker`, the string value of the key `key` is the id. Both are matched as
    JSON text with any spaces around the colon; a quoted mention inside another string has backslashes and never fits.
    """

    marker: str  # e.g. '"thread.started"'
    key: str  # e.g. 'thread_id'


@dataclass(frozen=True)
class Launch:
    """What the host starts. The prompt is always stdin, which is then at its end; nothing of it stands in argv."""

    argv: Tuple[str, ...]
    env: Dict[str, str] = field(default_factory=dict)
    session: Optional[SessionRule] = None
    session_id: Optional[str] = None  # known before the start, because we chose it
    files: Dict[str, str] = field(default_factory=dict)  # written into {job} before the start, mode 0600
    wants_schema: bool = False  # the host writes the result schema to {schema}
    permission: str = "workspace"  # what is really in force; the fallback is recorded (T12)
    keeps_unanswered: bool = True  # a session in which the model never answered can be gone on with


@dataclass(frozen=True)
class AuthCheck:
    """How to ask an agent whether it is signed in without starting a refresh of its token; exit status 0 yes, 1 no."""

    argv: Tuple[str, ...]  # behind the program
    variables: Tuple[str, ...]  # any of these set stands for a login
    remedy: str  # what a person types there


@dataclass(frozen=True)
class Event:
    """One thing that happened, in one vocabulary for all agents.

    kind: message, thinking, tool, command, file, prompt (a question that it waits with), usage, error, notice, end.
    """

    kind: str
    text: str = ""
    exit_code: Optional[int] = None
    path: Optional[str] = None


class Gap(bytes):
    """Stands among the lines where bytes of the output were not kept; to whoever does not ask, a blank line."""


@dataclass(frozen=True)
class Ended:
    """All that is known of a turn's end. `lines` are stdout's, head first, then (after a `Gap`) the kept tail."""

    lines: Iterable[bytes]
    stderr_tail: bytes
    exit_code: Optional[int]  # None when killed by a signal
    signal: Optional[int]
    last_message: Optional[str]  # content of {last_message}; "" when it cannot be read, None when there is none
    commits: int  # commits ahead of the turn's base, left-overs included
    files_changed: Tuple[str, ...]  # between the task's base and its head, when the turn moved that
    previous_usage: Optional[Usage] = None  # of the session before this turn, for agents that count cumulatively
    at: Optional[float] = None  # when it ended, by the clock of the machine where it ran
    zone: Optional[tzinfo] = None  # of that machine; None = UTC
    fields: Dict[str, str] = field(default_factory=dict)  # those of the turn
    lost_bytes: int = 0  # of stdout, in the gaps


@dataclass(frozen=True)
class Outcome:
    """How a turn ended, and why we say so. Limits of text: summary 8 KiB, evidence 1 KiB."""

    kind: str
    evidence: str
    summary: str = ""
    questions: Tuple[Question, ...] = ()
    usage: Usage = Usage()
    session_usage: Optional[Usage] = None  # cumulative over the session where the agent counts so
    session_id: Optional[str] = None
    limit: Optional[LimitNotice] = None  # with kind `limit`
    structured: bool = False  # summary and kind come from a valid structured result
    tool_calls: Optional[int] = None  # tools that the agent called, commands and edits included; None: nobody can tell
