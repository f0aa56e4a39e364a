"""The publisher: what a supervisor becomes at the end, and what recovery runs for one that died.

It judges the outcome, commits left-overs, brings the branch into the mirror, signs `.completed` or `.failed`, and only
then ends the attempt in the ledger, which releases the lease in the same transaction. Every part may be repeated.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from datetime import timedelta, timezone, tzinfo
from typing import Callable, Dict, Optional, Tuple, TypeVar

from ..agents import contract
from ..agents.options import is_session_id
from ..agents.table import load
from ..wire.codec import loads
from ..wire.errors import ShunterError
from ..wire.ids import checked_oid
from ..wire.messages import End, JobSpec, Publication, Usage
from ..wire.record import changed
from .bell import ring_sessions
from .durable import disk_code, json_line, read_regular, write_durably
from .flock import hold_lock
from .layout import Layout
from .ledger import Ledger
from .logs import log_end, lost_bytes, read_lines, read_tail
from .patience import Patience, may_pass
from .publish import publish_workspace
from .refs import published_head
from .remove import remove_tree
from .signals import Exited, read_exited
from .status import notices_of
from .supervisor import read_start
from .workspace import Identity

T = TypeVar("T")
LAST_MESSAGE_LIMIT_BYTES = 1 << 20
KILL = 9

KIND_OF_REASON = {
    "timeout": contract.TIMED_OUT,
    "cancel": contract.CANCELLED,
    "terminated": contract.LOST,
    "supervisor_died": contract.LOST,
    "spawn_failed": contract.LAUNCH_FAILED,
    "workspace_lost": contract.LAUNCH_FAILED,
}
WORDS_OF_REASON = {
    "timeout": "the turn ran into its time limit",
    "cancel": "the turn was cancelled",
    "terminated": "the supervisor was told to stop by a signal from outside",
    "supervisor_died": "the supervisor died and left no account of the end (supervisor_died)",
    "spawn_failed": "the agent could not be started",
    "workspace_lost": "the agent was not started, because its workspace cannot be entered",
}


WHERE_TO_LOOK = (
    "; programs are looked for on the PATH of the account's login shell: `shunter host check` shows what is there, and"
    " `command` in an [agents.NAME] entry of the configuration may give a full path"
)


def finish_attempt(layout: Layout, ledger: Ledger, spec: JobSpec, exited: Exited) -> None:
    """Harmless when somebody else did: the next turn may be at work in the workspace by then."""
    patience = Patience(layout.root)
    with contextlib.ExitStack() as stack:
        lock = layout.task_lock(spec.task_id)
        persist(patience, lambda: stack.enter_context(hold_lock(lock)))
        row = _ask(patience, ledger, lambda: ledger.find(spec.attempt_id))
        if row is not None and row["state"] == "accepted":
            _finish(layout, ledger, spec, exited, notices=notices_of(row), patience=patience)
    ring_sessions(layout.run, spec.attempt_id)
    remove_tree(os.path.join(layout.job(spec.attempt_id), "tmp"))


def _finish(
    layout: Layout, ledger: Ledger, spec: JobSpec, exited: Exited, *, notices: Tuple[str, ...], patience: Patience
) -> None:
    outcome, publication, error = _account(layout, ledger, spec, exited, notices=notices, patience=patience)
    end = _end(spec, exited, outcome, publication, error, version=_version(layout, spec))
    end = changed(end, **_losses(layout.job(spec.attempt_id), exited))
    kind = "completed" if exited.reason == "exit" and exited.exit_code == 0 else "failed"
    pairs = {"attempt": spec.attempt_id, "nonce": spec.nonce, "outcome": outcome.kind}
    persist(patience, lambda: write_durably(layout.signal(spec.attempt_id, kind), json_line(pairs)))
    _ask(patience, ledger, lambda: ledger.record_end(spec.attempt_id, end, actor="supervisor"))


def _account(
    layout: Layout, ledger: Ledger, spec: JobSpec, exited: Exited, *, notices: Tuple[str, ...], patience: Patience
) -> Tuple[contract.Outcome, Optional[Publication], Optional[ShunterError]]:
    """Publish and judge: what is seen of a disk that fails says nothing of the turn, so it is looked at again.

    Also once where all is well by then. A full disk is no reason to wait: the result is there, and published on demand.
    """
    previous = _ask(patience, ledger, lambda: _previous_usage(ledger, spec))
    publication: Optional[Publication] = None
    may_repeat = True
    while True:
        error: Optional[ShunterError] = None
        if publication is None:
            publication, error = _publish(layout, spec, notices)
        outcome, was_read = _judge(layout, spec, exited, publication, previous)
        if (error is None or error.code == "DISK_FULL") and was_read and patience.stands():
            return outcome, publication, error
        if patience.is_usable():
            if not may_repeat:
                return outcome, publication, error
            may_repeat = False
        elif not patience.wait():
            raise ShunterError("DISK_UNUSABLE", f"the data root {layout.root} is gone")


def persist(patience: Patience, act: Callable[[], T]) -> T:
    """Neither a full disk nor one that takes nothing may cost the account of an end; nobody waits but the lease."""
    while True:
        try:
            return act()
        except OSError as exc:
            if not may_pass(exc) or not patience.wait():
                raise
        except ShunterError as exc:
            if exc.code not in ("DISK_FULL", "DISK_UNUSABLE", "LEDGER_UNAVAILABLE") or not patience.wait():
                raise


def _ask(patience: Patience, ledger: Ledger, act: Callable[[], T]) -> T:
    """`persist` for what the ledger does; by a new connection after each failure."""

    def once() -> T:
        if not ledger.is_current():
            ledger.reopen()
        try:
            return act()
        except ShunterError:
            ledger.distrust()
            raise

    return persist(patience, once)


def publish_again(layout: Layout, ledger: Ledger, attempt_id: str) -> None:
    """Carry out a publication that failed when the turn ended; harmless when there is nothing to mend."""
    spec = ledger.load_spec(attempt_id)
    with hold_lock(layout.task_lock(spec.task_id)):
        row = ledger.find(attempt_id)
        if row is None or not row["end"]:
            return
        end = loads(End, row["end"], where="ledger", code="LEDGER_DAMAGED")
        if end.error_code is None:
            return
        publication, error = _publish(layout, spec, notices_of(row))
        if error is not None:
            raise error
        mended = changed(end, publication=publication, error_code=None, error_text=None)
        ledger.replace_publication(attempt_id, mended)


def _publish(
    layout: Layout, spec: JobSpec, notices: Tuple[str, ...]
) -> Tuple[Optional[Publication], Optional[ShunterError]]:
    """`notices`: what was told at the acceptance; a publication is where somebody reads it."""
    try:
        found = publish_workspace(
            layout.workspace(spec.task_id),
            mirror=layout.mirror(spec.project_id),
            task_id=spec.task_id,
            base_oid=spec.base_oid,
            turn_base_oid=_turn_base(layout, spec),
            message=f"shunter: left uncommitted by turn {spec.number} of task {spec.task_id}\n\n{spec.title}\n",
            identity=Identity(spec.identity_name, spec.identity_email),
        )
        return changed(found, notices=(*notices, *found.notices)), None
    except ShunterError as exc:
        return None, exc
    except OSError as exc:
        return None, ShunterError(disk_code(exc, "PUBLISH_FAILED"), f"{exc.filename}: {exc.strerror}")
    except Exception as exc:  # a fault of ours must not keep the attempt from ending
        return None, ShunterError("INTERNAL", f"publication: {type(exc).__name__}: {exc}")


def _turn_base(layout: Layout, spec: JobSpec) -> str:
    """The commit that the workspace stood at when the turn began: the result so far where nobody can read it."""
    noted = read_regular(os.path.join(layout.job(spec.attempt_id), "turn_base"), 65) or b""
    try:
        return checked_oid(noted.decode("ascii", "replace").strip())
    except ShunterError:
        return published_head(layout.mirror(spec.project_id), spec.task_id) or spec.base_oid


def _judge(
    layout: Layout,
    spec: JobSpec,
    exited: Exited,
    publication: Optional[Publication],
    previous: Optional[Usage],
) -> Tuple[contract.Outcome, bool]:
    """And whether all that it is judged by could be read."""
    was_read = True
    try:
        outcome = load(spec.agent).find_outcome(_ended(layout, spec, exited, publication, previous))
    except Exception as exc:  # likewise
        was_read = not isinstance(exc, OSError)
        outcome = contract.Outcome(contract.UNKNOWN, f"the output could not be judged: {type(exc).__name__}: {exc}")
    return _with_reason(outcome, layout, spec, exited, publication), was_read


def _ended(
    layout: Layout, spec: JobSpec, exited: Exited, publication: Optional[Publication], previous: Optional[Usage]
) -> contract.Ended:
    job = layout.job(spec.attempt_id)
    # What earlier turns did is not this one's work; a branch that was moved back is.
    moved = publication is not None and publication.head_oid != _turn_base(layout, spec)
    return contract.Ended(
        lines=read_lines(os.path.join(job, "stdout"), total=exited.stdout_bytes),
        stderr_tail=read_tail(os.path.join(job, "stderr"), 65536),
        exit_code=exited.exit_code,
        signal=exited.signal,
        last_message=_last_message(job),
        commits=publication.turn_commits if publication else 0,
        files_changed=tuple(change.path for change in publication.files) if publication and moved else (),
        previous_usage=previous,
        at=time.time(),
        zone=zone_of(job),
        fields=spec.fields,
        lost_bytes=lost_bytes(os.path.join(job, "stdout"), exited.stdout_bytes),
    )


def _with_reason(
    outcome: contract.Outcome, layout: Layout, spec: JobSpec, exited: Exited, publication: Optional[Publication]
) -> contract.Outcome:
    """What we know better than the agent can say."""
    kind = KIND_OF_REASON.get(exited.reason)
    if kind is None:
        return _as_published(as_oom(outcome, exited), publication)
    words = WORDS_OF_REASON[exited.reason]
    if exited.errno:
        what = layout.workspace(spec.task_id) if exited.reason == "workspace_lost" else spec.argv[0]
        words += f": {what}: {os.strerror(exited.errno)}"
    return changed(outcome, kind=kind, evidence=words, structured=False)


def as_oom(outcome: contract.Outcome, exited: Exited) -> contract.Outcome:
    """A SIGKILL that nobody here sent, with the kernel's word that it ended something for want of memory.

    A shell or another wrapper tells of a child's SIGKILL by the status 137.
    """
    if outcome.kind != contract.CRASHED or (exited.signal != KILL and exited.exit_code != 128 + KILL):
        return outcome
    if exited.oom_group:
        why = "the kernel ended a process of this turn for want of memory"
    elif exited.oom_machine:
        why = f"{exited.oom_machine} processes of this machine were ended for want of memory while the turn ran"
    else:
        return outcome
    return changed(outcome, kind=contract.OOM, evidence=f"{outcome.evidence}: {why}")


def _as_published(outcome: contract.Outcome, publication: Optional[Publication]) -> contract.Outcome:
    """Neither done nor without changes when the work is not there, or stands where nobody looks for it."""
    if outcome.kind not in (contract.DONE, contract.NO_CHANGES):
        return outcome
    if publication is None:
        why = "what changed could not be published"
    elif not publication.commits and publication.kept:
        why = "commits stand on other branches only: " + ", ".join(each.name for each in publication.kept)
    elif not publication.commits and publication.left_out:
        why = "only in the workspace: " + "; ".join(publication.left_out[:3])
    else:
        return outcome
    # Without a publication nobody knows of changes, so "no changes" would be a guess.
    ended = outcome.evidence if publication is not None or outcome.kind == contract.DONE else "it ended well"
    return changed(outcome, kind=contract.UNKNOWN, evidence=f"{ended}; {why}")


def _version(layout: Layout, spec: JobSpec) -> Optional[str]:
    if spec.agent == "exec":
        return None
    from .probes import known_version  # a tenth of the publisher's start, for what most commands do not need

    try:
        paths = [each[5:] for each in read_start(layout.job(spec.attempt_id)).env if each.startswith(b"PATH=")]
    except OSError:
        return None
    return known_version(layout, spec, os.fsdecode(paths[-1])) if paths else None


def zone_of(job: str) -> tzinfo:
    """The time zone that the agent had; a fixed distance from UTC where its rules cannot be found."""
    from zoneinfo import ZoneInfo

    try:
        given = [each for each in read_start(job).env if each.startswith(b"TZ=")]
        name = os.fsdecode(given[-1][3:]).lstrip(":") if given else ""
        if name:
            return ZoneInfo(name)
        with open("/etc/localtime", "rb") as file:
            return ZoneInfo.from_file(file)
    except (OSError, ValueError, KeyError):
        return timezone(timedelta(seconds=time.localtime().tm_gmtoff))


def _last_message(job: str) -> Optional[str]:
    """None when nothing was put there; empty when it cannot be read, for being another kind of file or a huge one."""
    path = os.path.join(job, "last_message")
    if not os.path.lexists(path):
        return None
    try:
        found = read_regular(path, LAST_MESSAGE_LIMIT_BYTES)
    except OSError:
        found = None
    return (found or b"").decode("utf-8", "replace")


def _previous_usage(ledger: Ledger, spec: JobSpec) -> Optional[Usage]:
    """What the session had used before this turn, for agents that count over the whole session.

    Of the last turn that told: one that was lost or never started tells nothing, and the session goes on.
    """
    for row in reversed(ledger.attempts_of(spec.task_id)):
        if row["end"] and row["attempt_id"] != spec.attempt_id:
            seen = loads(End, row["end"], where="ledger", code="LEDGER_DAMAGED").session_usage
            if seen is not None:
                return seen
    return None


def _end(
    spec: JobSpec,
    exited: Exited,
    outcome: contract.Outcome,
    publication: Optional[Publication],
    error: Optional[ShunterError],
    *,
    version: Optional[str],
) -> End:
    code, text = (error.code, error.text) if error else (None, None)
    if exited.reason == "spawn_failed":
        missing = exited.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC)
        code, text = ("AGENT_MISSING" if missing else "INTERNAL"), outcome.evidence + WHERE_TO_LOOK
    elif exited.reason == "workspace_lost":
        code, text = "WORKTREE_INCONSISTENT", outcome.evidence
    elif outcome.kind == contract.LAUNCH_FAILED and code is None:
        code, text = "AGENT_MISSING", outcome.evidence + WHERE_TO_LOOK
    elif exited.reason in ("supervisor_died", "terminated") and code is None:
        code, text = "TURN_LOST", outcome.evidence
    return End(
        outcome=outcome.kind,
        evidence=outcome.evidence[:1024],
        summary=outcome.summary[:8192],
        questions=outcome.questions,
        structured=outcome.structured,
        limit=outcome.limit,
        usage=outcome.usage,
        session_usage=outcome.session_usage,
        permission=spec.permission,
        reason=exited.reason,
        exit_code=exited.exit_code,
        signal=exited.signal,
        background=exited.background,
        stdout_bytes=exited.stdout_bytes,
        stderr_bytes=exited.stderr_bytes,
        cpu_s=exited.cpu_s,
        peak_rss_kib=exited.peak_rss_kib,
        publication=publication,
        error_code=code,
        error_text=text,
        tool_calls=outcome.tool_calls,
        agent_version=version,
        renamed_session=_renamed_session(spec, outcome),
    )


def _losses(job: str, exited: Exited) -> Dict[str, int]:
    totals = {"stdout": exited.stdout_bytes, "stderr": exited.stderr_bytes}
    return {f"{name}_lost_bytes": lost_bytes(os.path.join(job, name), total) for name, total in totals.items()}


def _renamed_session(spec: JobSpec, outcome: contract.Outcome) -> Optional[str]:
    """Some agents copy a session to go on in it, some begin another without a word."""
    told = outcome.session_id
    return told if spec.session_id and told != spec.session_id and is_session_id(told) else None


def unknown_end(layout: Layout, attempt_id: str) -> Exited:
    """For a supervisor that died: what is on disk is all there is, the exit status is unknown."""
    out, err = (log_end(os.path.join(layout.job(attempt_id), name)) for name in ("stdout", "stderr"))
    return Exited("supervisor_died", 0, None, None, 0, out, err, None, None, 0.0)


def end_attempt(data_root: str, attempt_id: str) -> None:
    """For a supervisor whose tree is gone. Harmless when it was done before."""
    layout = Layout(data_root)
    patience = Patience(layout.root)
    ledger = persist(patience, lambda: Ledger(layout.ledger, create=False))
    spec = _ask(patience, ledger, lambda: ledger.load_spec(attempt_id))
    exited = persist(patience, lambda: read_exited(layout, spec.attempt_id, spec.nonce))
    if exited is not None:
        finish_attempt(layout, ledger, spec, exited)
    ledger.close()
