"""What home asks a host and what the host answers: one frozen dataclass a message, decoded strictly.

Ids, object ids and paths are checked where they are used (`ids`), sizes by `rpc`. Times are seconds since the epoch on
the clock of the host that wrote them.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from .record import dataclass, field

PROTOCOL = 1
MAGIC = "SHUNTER-HOST"
PROMPT_LIMIT_BYTES = 512 * 1024  # a message is at most 1 MiB, and JSON may double a text


@dataclass(frozen=True)
class Hello:
    """The first line of the helper, after the magic word, the protocol version and home's nonce."""

    version: str
    digest: str  # of the helper's own zip file
    host_id: str
    os: str
    boot_id: str
    python: str
    git: str
    data_root: str
    pid: int


@dataclass(frozen=True)
class AgentFacts:
    """An agent whose program is there."""

    path: str
    version: Optional[str]  # as it prints it
    signed_in: Optional[bool]  # None: it gave no answer, or nobody can ask it
    can_be_asked: bool
    checked_at: float  # by the host's clock


@dataclass(frozen=True)
class Facts:
    """Measured now, or None: never invented."""

    slots_used: int
    memory_reserved_mb: int
    memory_available_mb: Optional[int]
    disk_free_mb: Optional[int]
    load_1m: Optional[float]
    cpus: Optional[int]
    running: Tuple[str, ...]  # attempt ids
    programs: Dict[str, Optional[str]] = field(default_factory=dict)  # asked-for programs: their path, or None
    memory_total_mb: Optional[int] = None
    cpu_busy_ticks: Optional[int] = None  # of all cores since boot (USER_HZ), all but idle and iowait
    cpu_ticks: Optional[int] = None  # all of them
    pressure: Dict[str, float] = field(default_factory=dict)  # cpu, memory, io: share of the last 10 s, 0 to 1
    boot_id: Optional[str] = None
    kernel: Optional[str] = None
    system: str = ""  # linux, wsl, darwin, …
    now: Optional[float] = None  # the host's wall clock
    agents: Optional[Dict[str, AgentFacts]] = None  # by `agent` and `agent@profile`; None: not asked for
    unknown_attempts: Dict[str, Tuple[int, ...]] = field(default_factory=dict)  # what runs and is in no ledger: pids


@dataclass(frozen=True)
class FactsAsk:
    programs: Tuple[str, ...] = ()
    agents: bool = False  # which there are and whether they are signed in, at most 15 minutes old
    fresh: bool = False  # those asked now


@dataclass(frozen=True)
class Proof:
    """What set-up looks at once and no turn asks for. None: could not be found out."""

    now: float
    user: str
    home: str
    home_writable: bool
    file_system: Optional[str]  # of the data root, as the mount table calls it
    mount_point: Optional[str]
    locks: Optional[bool]  # one process sees another's lock in the data root
    executes: bool  # a script in the data root
    lingers: Optional[bool]  # logind's setting for the account; None where there is no logind
    processes_left: Optional[int] = None  # that the account may still start, threads counted; None: no limit known


@dataclass(frozen=True)
class ProofRef:
    """A throw-away mirror; `project_id` begins with `proof-`, so nothing else can be named."""

    project_id: str
    task_id: str


@dataclass(frozen=True)
class Sleeper:
    """A process that was started as a supervisor is, to see whether it outlives the session."""

    pid: int
    start_time: Optional[int]
    boot_id: str


@dataclass(frozen=True)
class Slept:
    state: str  # alive, dead or unknown; it is gone afterwards


@dataclass(frozen=True)
class TidyAsk:
    older_than_s: float


@dataclass(frozen=True)
class Tidied:
    removed: Tuple[str, ...]
    kept: Tuple[str, ...]  # what processes still run from, or what was used lately


@dataclass(frozen=True)
class HeldTask:
    """A task that is not closed on a host, of whichever home."""

    task_id: str
    head_oid: Optional[str]  # what its last turn published; None: no turn did
    loose: bool  # something of it stands in the workspace alone, or that could not be judged


@dataclass(frozen=True)
class Contents:
    """What shunter has on a host."""

    data_root: str
    bytes: int
    tasks: Tuple[HeldTask, ...]
    mirrors: Tuple[str, ...]
    running: Tuple[str, ...]


@dataclass(frozen=True)
class Jobs:
    """As a question: which of these have you accepted? As the answer: these."""

    ids: Tuple[str, ...]


@dataclass(frozen=True)
class Purged:
    """What became of a data root that was removed."""

    data_root: str
    found: bool  # something of shunter's was there
    has_others: bool  # files of somebody, which stay
    stays: Optional[str]  # why the emptied directory itself does, in the system's words; None: it does not
    left: Tuple[str, ...]  # what could not be removed, with the reason


@dataclass(frozen=True)
class LeaseAsk:
    """The capacity is home's configuration of this host; the ledger decides inside one transaction."""

    attempt_id: str
    job_id: str
    task_id: str
    slots: int
    memory_mb: int
    capacity_slots: int
    capacity_memory_mb: Optional[int]


@dataclass(frozen=True)
class Lease:
    """`token` None: refused, and `busy` says why.

    `accepted_as`: the host has accepted the job before, as that attempt, of which home lost the record.
    """

    token: Optional[str]
    busy: Optional[str]
    ttl_s: float = 60.0
    accepted_as: Optional[str] = None


@dataclass(frozen=True)
class LeaseRef:
    attempt_id: str
    token: str


@dataclass(frozen=True)
class MirrorAsk:
    attempt_id: str
    token: str
    task_id: str
    project_id: str
    object_format: str
    base_oid: str
    origin_url: Optional[str] = None  # fetch the base from there, with the account's own credentials


@dataclass(frozen=True)
class MirrorReady:
    path: str
    has_base: bool  # the base is there and pinned: nothing is to be pushed
    fetched: bool = False  # from origin, just now


@dataclass(frozen=True)
class Limits:
    """How a host supervises; the time limit of a turn stands in its job."""

    term_grace_s: float
    background_grace_s: float
    quiet_s: float
    output_cap_bytes: int
    tail_bytes: int
    silent_s: float = 600.0  # without output, after which the turn is called silent; 0 = never


@dataclass(frozen=True)
class PushTarget:
    """Where a result goes besides home; the URL holds no credentials."""

    url: str
    branch: str


@dataclass(frozen=True)
class JobSpec:
    """All that a host needs to run one attempt and to publish its end. Never holds a secret's value on purpose."""

    attempt_id: str
    job_id: str
    task_id: str
    project_id: str
    nonce: str
    number: int  # the turn's number within the task, from 1
    title: str
    base_oid: str
    agent: str
    argv: Tuple[str, ...]
    env: Dict[str, str]
    files: Dict[str, str]
    wants_schema: bool
    session_marker: Optional[str]
    session_key: Optional[str]
    session_id: Optional[str]
    permission: str
    identity_name: str
    identity_email: str
    timeout_s: float  # 0 = none
    limits: Limits
    env_profile: Optional[str] = None
    push: Optional[PushTarget] = None
    fields: Dict[str, str] = field(default_factory=dict)  # of a configured command: where its JSON lines hold what
    result_oid: Optional[str] = None  # of earlier turns, as home has it


@dataclass(frozen=True)
class AcceptAsk:
    token: str
    spec: JobSpec
    prompt: str


@dataclass(frozen=True)
class AttemptRef:
    attempt_id: str
    job_id: str


@dataclass(frozen=True)
class CancelAsk:
    attempt_id: str
    actor: str


@dataclass(frozen=True)
class Usage:
    """Tokens of one turn; None where the agent tells none. `cost_usd` is as the agent reckons it."""

    input_tokens: Optional[int] = None
    cached_tokens: Optional[int] = None
    output_tokens: Optional[int] = None
    cost_usd: Optional[float] = None


@dataclass(frozen=True)
class Question:
    text: str
    options: Tuple[str, ...] = ()


@dataclass(frozen=True)
class LimitNotice:
    """What the provider said of a limit that stopped a turn. What it did not say, or nobody understood, is None."""

    raw: str  # its own words
    window: Optional[str] = None  # five_hour, daily, weekly, monthly
    resets_at: Optional[float] = None
    renews: bool = True  # False: no time mends it, somebody has to pay


@dataclass(frozen=True)
class FileChange:
    """`status` is git's letter (A, M, D, T, R…); names with bytes that are no UTF-8 carry surrogates."""

    path: str
    status: str
    added: Optional[int]  # None for binary files
    deleted: Optional[int]


@dataclass(frozen=True)
class KeptWork:
    """Commits that are no part of the result: what the workspace called them, and their ref in the mirror."""

    name: str
    ref: str
    oid: str


@dataclass(frozen=True)
class Publication:
    """What a turn left in git, relative to the task's base; of `files_total` changed files at most 1000 are listed."""

    head_oid: str
    commits: int  # ahead of the task's base
    turn_commits: int = 0  # ahead of where this turn began
    leftovers_committed: bool = False
    rewritten: bool = False  # the base is no ancestor of the head any more
    files: Tuple[FileChange, ...] = ()
    files_total: int = 0
    insertions: int = 0
    deletions: int = 0
    kept: Tuple[KeptWork, ...] = ()
    left_out: Tuple[str, ...] = ()  # what stands in the workspace alone; closing the task would lose it
    notices: Tuple[str, ...] = ()  # anything that is not part of the result or was not as it should be


@dataclass(frozen=True)
class End:
    """How an attempt ended: the outcome, what was seen, and what was published."""

    outcome: str  # kinds of agents.contract
    evidence: str
    summary: str = ""
    questions: Tuple[Question, ...] = ()
    structured: bool = False
    limit: Optional[LimitNotice] = None  # with outcome `limit`
    usage: Usage = Usage()
    session_usage: Optional[Usage] = None
    permission: str = "workspace"  # what was in force: workspace or unattended
    reason: str = "exit"  # exit, timeout, cancel, terminated, spawn_failed, supervisor_died
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    background: int = 0  # processes that the agent left running and that were ended
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_lost_bytes: int = 0  # of those, not kept
    stderr_lost_bytes: int = 0
    cpu_s: Optional[float] = None
    peak_rss_kib: Optional[int] = None
    publication: Optional[Publication] = None
    error_code: Optional[str] = None
    error_text: Optional[str] = None
    tool_calls: Optional[int] = None  # None: not known, which is not the same as none
    agent_version: Optional[str] = None  # as its program prints it; None: nobody asked that program yet
    renamed_session: Optional[str] = None  # where the agent went on, when that is not the session that it was given


@dataclass(frozen=True)
class AttemptStatus:
    """What the host knows of one attempt. state: unknown, tombstoned, accepted, launched, exited, ended."""

    attempt_id: str
    state: str
    session_id: Optional[str] = None
    accepted_at: Optional[float] = None
    launched_at: Optional[float] = None
    exited_at: Optional[float] = None  # the agent's tree was gone; publication follows
    ended_at: Optional[float] = None
    pid: Optional[int] = None
    cancel_requested: bool = False
    end: Optional[End] = None
    silent_s: Optional[float] = None  # without output for so long, once that is over the limit or it asks something
    asks: Optional[str] = None  # what its last words ask somebody who is not there
    notices: Tuple[str, ...] = ()


@dataclass(frozen=True)
class LogAsk:
    attempt_id: str
    stream: str  # stdout or stderr
    offset: int
    limit: int = 65536
    ago_s: Optional[float] = None  # leave out what came earlier, by the host's clock


@dataclass(frozen=True)
class LogChunk:
    """Bytes from `offset` on. When the cap cut a piece out, `gap_bytes` are missing just before these bytes."""

    offset: int
    data: str  # base64
    gap_bytes: int
    next_offset: int
    ended: bool  # the turn is over and this was the last byte


@dataclass(frozen=True)
class FollowAsk:
    """Send `log.grew` for this attempt's stream while the session lasts."""

    attempt_id: str
    stream: str


@dataclass(frozen=True)
class TaskRef:
    task_id: str


@dataclass(frozen=True)
class LastPublished:
    """By the last attempt of a task that published; None where none did."""

    attempt_id: Optional[str]
    publication: Optional[Publication]


@dataclass(frozen=True)
class CloseAsk:
    """Remove a task's workspace. `delivered_oid` is the head that home proves to have; None = discard on purpose."""

    task_id: str
    project_id: str
    delivered_oid: Optional[str]
    actor: str


@dataclass(frozen=True)
class Closed:
    removed: bool
    kept: Tuple[str, ...] = ()  # what could not be removed, and why


@dataclass(frozen=True)
class PackAsk:
    """The objects of a task's published head less those of its base, which home holds as well as the mirror."""

    task_id: str
    project_id: str
    base_oid: str
    head_oid: str


@dataclass(frozen=True)
class Pack:
    data: Optional[str]  # base64 of one thin pack; None: fetch it, it is large or no plain case


@dataclass(frozen=True)
class PushAsk:
    task_id: str
    actor: str


@dataclass(frozen=True)
class Pushed:
    """The outbox entry of a task. state: none, pending, pushed, failed (may be tried again), refused, dropped."""

    state: str
    url: str = ""
    branch: str = ""
    wanted_oid: Optional[str] = None  # what the last turn published
    pushed_oid: Optional[str] = None  # what of it origin has taken
    tries: int = 0
    error_code: Optional[str] = None
    error_text: Optional[str] = None
    hint: Optional[str] = None


@dataclass(frozen=True)
class OriginAsk:
    """`writes`: push a ref under refs/shunter/proof/ and delete it; otherwise a push is only rehearsed."""

    url: str
    writes: bool


@dataclass(frozen=True)
class Tried:
    """What was done, or why it failed."""

    done: Optional[str] = None
    error_code: Optional[str] = None
    error_text: Optional[str] = None
    hint: Optional[str] = None


@dataclass(frozen=True)
class OriginProof:
    fetch: Tried
    push: Optional[Tried] = None  # None: not tried, because nothing could be fetched


@dataclass(frozen=True)
class Nothing:
    pass


# method: (what it takes, what it gives). `attempt.accept` and `mirror.prepare` are safe to repeat for the same ids.
METHODS = {
    "host.facts": (FactsAsk, Facts),
    "host.prove": (Nothing, Proof),
    "host.tidy": (TidyAsk, Tidied),
    "host.contents": (Nothing, Contents),
    "proof.publish": (ProofRef, Nothing),
    "proof.remove": (ProofRef, Nothing),
    "proof.sleep": (Nothing, Sleeper),
    "proof.end": (Sleeper, Slept),
    "job.known": (Jobs, Jobs),
    "lease.grant": (LeaseAsk, Lease),
    "lease.renew": (LeaseRef, Lease),
    "lease.release": (LeaseRef, Nothing),
    "mirror.prepare": (MirrorAsk, MirrorReady),
    "attempt.accept": (AcceptAsk, AttemptStatus),
    "attempt.status": (AttemptRef, AttemptStatus),
    "attempt.tombstone": (AttemptRef, AttemptStatus),
    "attempt.cancel": (CancelAsk, AttemptStatus),
    "attempt.publish": (AttemptRef, AttemptStatus),
    "log.read": (LogAsk, LogChunk),
    "log.follow": (FollowAsk, Nothing),
    "task.published": (TaskRef, LastPublished),
    "task.close": (CloseAsk, Closed),
    "result.pack": (PackAsk, Pack),
    "origin.push": (PushAsk, Pushed),
    "origin.prove": (OriginAsk, OriginProof),
}
