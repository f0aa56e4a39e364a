"""Three questions about one body of evidence; a single "is it alive?" is how live workers get cancelled.

`recovery_veto` is asked before an attempt is given up, `authoritative_result` before a result is believed,
`mutation_allowed` inside every function that changes a workspace. They are pure and total: each combination of values
has an answer, and one that no row of the table knows gets the more careful neighbour's. The table with the names of
its rows (S1 to P8) is `tests/unit/host/test_liveness.py`.

Three laws hold over all combinations: a foreign host never allows recovery or mutation; recovery is never allowed
while the process is alive or anything moved recently; no result is authoritative without a supervisor's signal or a
report whose nonce is the attempt's.
"""

from __future__ import annotations

from typing import Optional, Tuple

from ..wire.record import dataclass

FULL, PARTIAL, NONE = "full", "partial", "none"
SAME, FOREIGN = "same", "foreign"
LAUNCHED, EXITED, COMPLETED, FAILED, ACK = "launched", "exited", "completed", "failed", "ack"
ALIVE, DEAD, UNKNOWN = "alive", "dead", "unknown"

VALUES = {
    "identity": (FULL, PARTIAL, NONE),
    "host": (SAME, FOREIGN),
    "signal": (NONE, LAUNCHED, EXITED, COMPLETED, FAILED),
    "report": (NONE, ACK, COMPLETED, FAILED),
    "result_file": (False, True),
    "process": (ALIVE, DEAD, UNKNOWN),
    "supervisor": (ALIVE, DEAD, UNKNOWN),
    "heartbeat_recent": (False, True),
    "files_recent": (False, True),
    "report_nonce_matches": (False, True),
}


@dataclass(frozen=True)
class Evidence:
    """What was seen of one attempt. "Recent" means within the freshness window (30 s by default)."""

    identity: str  # full: host id, OS, boot id and start time were recorded; partial: some; none: only a pid
    host: str  # same: weighed on the host that the attempt names; foreign: elsewhere
    signal: str  # strongest one that the supervisor left, nonce checked; a wrong nonce counts as none
    report: str  # what the agent or an operator said; may be stale
    result_file: bool
    process: str  # by pid and boot id and start time; a missing start time never makes it dead
    supervisor: str
    heartbeat_recent: bool
    files_recent: bool
    report_nonce_matches: bool = False  # the report names this very attempt

    def __post_init__(self) -> None:
        for name, allowed in VALUES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} cannot be {getattr(self, name)!r}")


@dataclass(frozen=True)
class Result:
    """`standing`: authoritative, corroborated (believed with a note in the audit log) or none.

    `verdict`: completed, failed, exited (the end is known, the publication is not), silent_death (failed, no evidence
    of an end), unknown_host, or unknown (wait).
    """

    standing: str
    verdict: str
    source: str = NONE  # signal or report
    notes: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Intent:
    """Why somebody wants to change a workspace.

    `never_used`: the caller has proved that no attempt refers to the workspace. It opens the one exemption, clean-up
    of what nobody ever used; the caller writes actor, reason, ids and findings to the audit log, also when refused.
    """

    action: str
    never_used: bool = False


@dataclass(frozen=True)
class Permission:
    """True in a condition when it is given; `reason` says why or why not."""

    allowed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True)
class Advice:
    """`action`: ingest, give_up, wait, ask_host. `workspace`: may it be changed afterwards."""

    action: str
    workspace: bool
    notes: Tuple[str, ...] = ()


def recovery_veto(evidence: Evidence) -> Optional[str]:
    """Why the attempt must not be given up; None when it may. Any sign of life vetoes."""
    return _sign_of_life(evidence)


def authoritative_result(evidence: Evidence) -> Result:
    """What may be believed of how the attempt ended. Never guesses."""
    if _moved(evidence) or (evidence.host == SAME and evidence.process == ALIVE):
        return Result(NONE, UNKNOWN, notes=("something moves",))
    if evidence.signal in (COMPLETED, FAILED):
        # A signal is a fact that the owning host wrote, not a judgement of a pid: it holds from anywhere.
        return Result("authoritative", evidence.signal, "signal")
    if evidence.host == FOREIGN:
        return Result(NONE, "unknown_host")
    if evidence.process != DEAD or evidence.supervisor == ALIVE:
        return Result(NONE, UNKNOWN)
    if evidence.signal == EXITED:
        return Result("corroborated", EXITED, "signal", ("supervisor_died",))
    if evidence.report in (COMPLETED, FAILED):
        if evidence.identity == PARTIAL and evidence.report_nonce_matches:
            return Result("authoritative", evidence.report, "report")
        return Result("corroborated", evidence.report, "report", ("self_report",))
    return Result(NONE, "silent_death", notes=_death_notes(evidence))


def mutation_allowed(evidence: Evidence, intent: Intent) -> Permission:
    """Whether the workspace may be changed now: the work is proved over and nothing has moved in it."""
    sign = _sign_of_life(evidence)
    if sign is None:
        return Permission(True, f"{intent.action}: the work is over and quiet")
    if intent.never_used and _never_used(evidence):
        return Permission(True, f"{intent.action}: nobody ever used it")
    return Permission(False, f"{intent.action}: {sign}")


def recommend(evidence: Evidence) -> Advice:
    """What to do next; the last column of the table."""
    result = authoritative_result(evidence)
    free = recovery_veto(evidence) is None
    if result.standing == "authoritative" and (free or evidence.host == FOREIGN):
        return Advice("ingest", workspace=free, notes=result.notes)
    if result.verdict == "unknown_host":
        return Advice("ask_host", workspace=False)
    if not free:
        return Advice("wait", workspace=False, notes=(recovery_veto(evidence) or "",))
    if result.standing == "corroborated":
        return Advice("ingest", workspace=True, notes=result.notes)
    return Advice("give_up", workspace=True, notes=result.notes)


def _sign_of_life(evidence: Evidence) -> Optional[str]:
    if evidence.host == FOREIGN:
        return "it belongs to another host"
    if evidence.process == ALIVE:
        return "the process is alive"
    if evidence.process == UNKNOWN:
        return "nobody can tell whether the process is alive"
    if evidence.supervisor == ALIVE and evidence.signal not in (COMPLETED, FAILED):
        return "the supervisor is at work"
    if evidence.heartbeat_recent:
        return "there was a heartbeat a moment ago"
    if evidence.files_recent:
        return "files changed a moment ago"
    return None


def _moved(evidence: Evidence) -> bool:
    return evidence.heartbeat_recent or evidence.files_recent


def _never_used(evidence: Evidence) -> bool:
    """All four proofs (the caller's, no heartbeat, no result, no file activity), and nothing that speaks against."""
    spoken = evidence.signal != NONE or evidence.report != NONE or evidence.result_file
    at_work = ALIVE in (evidence.process, evidence.supervisor)
    return evidence.host == SAME and not spoken and not at_work and not _moved(evidence)


def _death_notes(evidence: Evidence) -> Tuple[str, ...]:
    notes = [("supervisor_died", evidence.supervisor == DEAD), ("identity_partial", evidence.identity == PARTIAL)]
    return tuple(note for note, holds in notes if holds)
