# ruff: noqa: UP045 (the codec reads Optional[X]; on Python 3.11 to 3.13 `X | None` is another thing at run time)
"""Records of home: what the store holds and what the faces render. Frozen, and strictly decodable by `wire.codec`.

Times are seconds since the epoch (floats); None means "not yet" or "not known", never 0. Ids are those of `wire.ids`.
"""

from __future__ import annotations

from typing import Optional

from ..wire.messages import End
from ..wire.record import dataclass
from .states import AttemptState, PushState, Step, TaskState, TurnState

SUMMARY_CHARACTERS = 200


@dataclass(frozen=True)
class Project:
    """A git repository of the user, as one checkout of it was seen at submit."""

    project_id: str  # from the origin URL
    repo_id: str  # from the common git directory
    worktree_id: str  # from the checkout
    worktree: str  # path
    common_dir: str  # path
    object_format: str = "sha1"  # or sha256
    name: str = ""


@dataclass(frozen=True)
class Options:
    """What the user asked of a task besides the prompt; fixed at submit."""

    timeout_s: Optional[float] = None  # None = no limit
    max_turns: Optional[int] = None
    max_budget_usd: Optional[float] = None
    max_followups: Optional[int] = None
    close_on: str = "never"  # never, done, any: which outcome closes the task by itself
    env_profile: Optional[str] = None
    weight: Optional[str] = None  # the name that memory_mb came from
    memory_mb: Optional[int] = None  # to reserve on the host
    slots: int = 1
    priority: int = 0  # higher goes first
    source: str = "home"  # or origin: the host fetches the base itself
    origin_url: Optional[str] = None  # to fetch from, without credentials
    push_url: Optional[str] = None  # to push to, likewise; None = home alone gets the result
    push_branch: Optional[str] = None


NO_OPTIONS = Options()


@dataclass(frozen=True)
class Task:
    """Prompt + agent + base; one workspace, one branch, one agent session, on one host. The prompt is no field (P9)."""

    id: str
    title: str
    agent: str
    state: TaskState
    project_id: str
    repo_id: str
    worktree_id: str
    base_oid: str
    base_kind: str  # commit or wip
    branch: str
    created_at: float
    model: Optional[str] = None
    effort: Optional[str] = None
    permission: str = "workspace"  # or unattended
    pinned_host: Optional[str] = None  # by the user
    host: Optional[str] = None  # where it lives, from acceptance on
    closed_at: Optional[float] = None
    last_outcome: Optional[str] = None  # kind, see agents.contract
    head_oid: Optional[str] = None  # published on the host
    fetched_oid: Optional[str] = None  # delivered home
    fetched_ref: Optional[str] = None  # where it stands in the user's repository
    session_id: Optional[str] = None
    options: Options = NO_OPTIONS


@dataclass(frozen=True)
class Turn:
    """One run of the agent for a task. `step` is the driver's, `state` is what people see."""

    id: str
    task_id: str
    number: int  # from 1
    state: TurnState
    step: Step
    created_at: float
    host: Optional[str] = None  # of the present attempt
    attempt_id: Optional[str] = None  # None exactly while no attempt is under way
    attempt_number: int = 0  # attempts so far
    uncertain: bool = False  # the host holds the answer and could not be asked
    uncertain_reason: Optional[str] = None
    cancel_requested_at: Optional[float] = None
    cancel_actor: Optional[str] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    outcome: Optional[End] = None  # as the host told it
    error_code: Optional[str] = None
    error_text: Optional[str] = None
    claimed_at: Optional[float] = None
    leased_at: Optional[float] = None
    shipped_at: Optional[float] = None
    accepted_at: Optional[float] = None
    started_at: Optional[float] = None
    exited_at: Optional[float] = None  # the agent's tree was gone
    ended_at: Optional[float] = None
    fetched_at: Optional[float] = None
    settled_at: Optional[float] = None
    repeat_number: int = 0  # n: the dispatcher's nth repeat of a message, right behind the turn that it repeats
    repeat_limit: int = 0  # how many there may be
    fresh_session: bool = False  # it began a new one, although the task had one
    account: Optional[str] = None  # whose login it used on its host: agent or agent@profile; None = nobody's


@dataclass(frozen=True)
class Attempt:
    """One try to launch a turn on a host; `number` grows with every try and never comes back (fencing)."""

    id: str
    turn_id: str
    number: int
    host: str
    state: AttemptState
    created_at: float
    lease_token: Optional[str] = None
    failure_code: Optional[str] = None
    ended_at: Optional[float] = None


@dataclass(frozen=True)
class Requirements:
    """What a row needs of a host, and what it prefers. Rows with equal requirements and pin are interchangeable."""

    agent: str  # adapter or adapter@profile
    slots: int = 1
    memory_mb: Optional[int] = None
    object_format: str = "sha1"
    capabilities: tuple[str, ...] = ()
    project_id: str = ""
    worktree_id: str = ""
    account: Optional[str] = None  # as in Turn


@dataclass(frozen=True)
class Row:
    """A turn in the queue or under way: ids, a sanitised summary and bounded codes, nothing else (P9)."""

    turn_id: str
    task_id: str
    summary: str
    requirements: Requirements
    priority: int = 0
    pinned_host: Optional[str] = None
    not_before: Optional[float] = None
    owner: Optional[str] = None  # id of the dispatcher that has claimed it; None = waits
    error_code: Optional[str] = None  # of the last try
    seq: int = 0  # place in the queue, given by the store


@dataclass(frozen=True)
class Event:
    """One line of the audit trail; append only."""

    at: float
    kind: str
    actor: str
    task_id: Optional[str] = None
    turn_id: Optional[str] = None
    attempt_id: Optional[str] = None
    from_state: Optional[str] = None
    to_state: Optional[str] = None
    reason: Optional[str] = None
    seq: int = 0  # given by the store


@dataclass(frozen=True)
class Push:
    """A task's branch on origin (X20), for tasks that were submitted with it. The host's outbox is the authority."""

    task_id: str
    origin: str  # names the repository whatever way it is reached: pushes to one go one after another
    url: str
    branch: str
    state: PushState
    updated_at: float
    wanted_oid: Optional[str] = None  # what the last turn published
    pushed_oid: Optional[str] = None  # what of it origin has taken
    tries: int = 0  # since somebody asked for it
    next_try_at: Optional[float] = None  # None: nothing happens by itself
    error_code: Optional[str] = None  # of the last try
    error_text: Optional[str] = None
    hint: Optional[str] = None


@dataclass(frozen=True)
class Drain:
    """A host takes no new turns; what runs there goes on."""

    host: str
    at: float
    actor: str
    reason: Optional[str] = None


@dataclass(frozen=True)
class Owner:
    """A dispatcher process: a random id made at its start, and what is needed to judge later whether it lives (P7)."""

    id: str
    host_id: str
    boot_id: str
    pid: int
    start_time: Optional[int] = None  # clock ticks since boot; None = not known, never a mismatch


@dataclass(frozen=True)
class Leader:
    """The leadership row. `owner` None: nobody leads; the term stays, so that it only ever grows."""

    owner: Optional[Owner]
    term: int
    renewed_at: float
    ttl_s: float


def sanitised_summary(text: str) -> str:
    """One printable line of at most 200 characters; every control or format character becomes a space."""
    printable = "".join(character if character.isprintable() else " " for character in text[: 8 * SUMMARY_CHARACTERS])
    line = " ".join(printable.split())
    return line if len(line) <= SUMMARY_CHARACTERS else line[: SUMMARY_CHARACTERS - 1] + "…"
