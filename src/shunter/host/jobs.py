"""Taking an attempt on: prepare the workspace, store the attempt, then start its supervisor, then answer.

Every function may be repeated for the same ids. The order is what makes one launch the most there can be: files of the
job first, then the ledger's row, then the supervisor, which creates `launch` exclusively before it spawns.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import Dict, Iterator, List, Optional, Tuple

from ..agents.result import SCHEMA
from ..wire.codec import decode, loads
from ..wire.errors import ShunterError
from ..wire.messages import AcceptAsk, AttemptStatus, CloseAsk, Closed, End, JobSpec
from .environment import load_login_environment, load_profile
from .identity import ALIVE, judge_process, read_boot_id, signal_process
from .layout import Layout
from .ledger import Ledger
from .refs import drop_task_refs, published_head
from .signals import read_exited, read_launched, read_supervisor
from .supervisor import write_durably
from .workspace import Identity, ensure_workspace, remove_workspace

LIBRARY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PR_SET_CHILD_SUBREAPER = 36


def python_argv(module: str, *arguments: str) -> Tuple[str, ...]:
    """This interpreter without site and environment, running `main()` of one of our modules."""
    code = f"import sys;sys.path.insert(0,{LIBRARY!r});from shunter.host.{module} import main;main()"
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


@contextlib.contextmanager
def task_lock(layout: Layout, task_id: str) -> Iterator[None]:
    """One change of a task's workspace at a time, across processes; dies with its holder."""
    fd = os.open(layout.task_lock(task_id), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def accept_attempt(layout: Layout, ledger: Ledger, ask: AcceptAsk) -> AttemptStatus:
    """Raises CHECKOUT_FAILED and others before anything was stored; then no agent ever starts for the attempt."""
    spec = ask.spec
    refuse_unsupervised()
    with task_lock(layout, spec.task_id):
        if ledger.find(spec.attempt_id) is None:
            ledger.check_lease(spec.attempt_id, ask.token)
            workspace = ensure_workspace(
                layout.workspace(spec.task_id),
                mirror=layout.mirror(spec.project_id),
                task_id=spec.task_id,
                base_oid=spec.base_oid,
                identity=Identity(spec.identity_name, spec.identity_email),
            )
            before = published_head(layout.mirror(spec.project_id), spec.task_id) if spec.number > 1 else None
            turn_base = before or spec.base_oid
            write_job(layout, spec, prompt=ask.prompt, turn_base=turn_base)
            ledger.accept(spec, ask.token, workspace.notices)
        start_supervisor(layout, spec.attempt_id)
    return read_status(layout, ledger, spec.attempt_id)


def refuse_unsupervised() -> None:
    if not sys.platform.startswith("linux"):
        text = f"a process tree cannot be held together on {sys.platform} yet, so nothing is launched here"
        raise ShunterError("HOST_INCAPABLE", text)


def write_job(layout: Layout, spec: JobSpec, *, prompt: str, turn_base: str) -> None:
    """The job's directory, complete and durable before the ledger knows of the attempt."""
    job = layout.job(spec.attempt_id)
    shutil.rmtree(job, ignore_errors=True)  # of an acceptance that did not get as far as the ledger
    os.makedirs(os.path.join(job, "tmp"), mode=0o700)
    places = {
        "{workspace}": layout.workspace(spec.task_id),
        "{git_dir}": os.path.join(layout.workspace(spec.task_id), ".git"),
        "{job}": job,
        "{schema}": os.path.join(job, "schema.json"),
        "{last_message}": os.path.join(job, "last_message"),
        "{tmp}": os.path.join(job, "tmp"),
    }
    files = dict(spec.files)
    if spec.wants_schema:
        files["schema.json"] = json.dumps(SCHEMA)
    for name, text in files.items():
        if os.path.basename(name) != name or name.startswith("."):
            raise ShunterError("PROTOCOL", f"not a file name: {name!r}")
        _write(os.path.join(job, name), _filled(text, places).encode("utf-8", "surrogateescape"))
    _write(os.path.join(job, "prompt"), prompt.encode("utf-8", "surrogateescape"))
    _write(os.path.join(job, "turn_base"), turn_base.encode())
    _write(os.path.join(job, "start"), _start_file(layout, spec, places))
    if spec.session_id:
        os.makedirs(layout.task(spec.task_id), mode=0o700, exist_ok=True)
        write_durably(layout.session(spec.task_id), spec.session_id.encode() + b"\n")
    _sync_directory(job)


def _write(path: str, data: bytes) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        raise ShunterError("DISK_FULL" if exc.errno in (28, 122) else "IO", f"{path}: {exc.strerror}") from exc


def _sync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _filled(text: str, places: Dict[str, str]) -> str:
    for place, path in places.items():
        text = text.replace(place, path)
    return text


def agent_environment(layout: Layout, spec: JobSpec, places: Dict[str, str]) -> Dict[str, str]:
    found = dict(load_login_environment(layout))
    if spec.env_profile:
        found.update(load_profile(spec.env_profile))
    found.update({name: _filled(value, places) for name, value in spec.env.items()})
    found.update(
        TMPDIR=places["{tmp}"],
        SHUNTER_TASK=spec.task_id,
        SHUNTER_TURN=spec.job_id,
        SHUNTER_ATTEMPT=spec.attempt_id,
        SHUNTER_WORKSPACE=places["{workspace}"],
    )
    return found


def _start_file(layout: Layout, spec: JobSpec, places: Dict[str, str]) -> bytes:
    """What the supervisor reads: NUL-separated pairs, so that it needs no parser."""
    environment = agent_environment(layout, spec, places)
    argv = [_filled(word, places) for word in spec.argv]
    one = {
        "attempt": spec.attempt_id,
        "nonce": spec.nonce,
        "boot_id": read_boot_id(),
        "run_dir": layout.run,
        "signals": layout.signals,
        "workspace": places["{workspace}"],
        "prompt": os.path.join(places["{job}"], "prompt"),
        "session_file": layout.session(spec.task_id),
        "marker": spec.session_marker or "",
        "key": spec.session_key or "",
        "cgroup": writable_cgroup() or "",
        "timeout_s": repr(spec.timeout_s),
        "term_grace_s": repr(spec.limits.term_grace_s),
        "background_grace_s": repr(spec.limits.background_grace_s),
        "cap_bytes": str(spec.limits.output_cap_bytes),
        "tail_bytes": str(spec.limits.tail_bytes),
    }
    pairs: List[Tuple[str, str]] = list(one.items())
    pairs += [("argv", word) for word in argv]
    pairs += [("env", f"{name}={value}") for name, value in sorted(environment.items())]
    pairs += [("next", word) for word in python_argv("ending", layout.root, spec.attempt_id)]
    if any("\0" in value for _, value in pairs):
        raise ShunterError("PROTOCOL", "a NUL byte in the argument vector or environment of the agent")
    return b"".join(os.fsencode(key) + b"\0" + os.fsencode(value) + b"\0" for key, value in pairs)


def writable_cgroup() -> Optional[str]:
    """The cgroup (version 2) that this process is in, when it may make one below it."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = next(line[3:].strip() for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mount = next(line.split()[4] for line in file if " - cgroup2 " in line)
    except (OSError, StopIteration, IndexError):
        return None
    path = os.path.join(mount, own.lstrip("/"))
    return path if os.access(path, os.W_OK) else None


_libc = ctypes.CDLL(None, use_errno=True)
_children: List[subprocess.Popen[bytes]] = []


def _become_subreaper() -> None:
    # Between fork and exec. The attribute survives exec, so the supervisor itself needs no ctypes (0.5 MiB).
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_supervisor(layout: Layout, attempt_id: str) -> None:
    """Harmless when one was started: the second finds `launch` and goes."""
    job = layout.job(attempt_id)
    if os.path.exists(os.path.join(job, "launch")):
        return
    _children[:] = [child for child in _children if child.poll() is None]
    with open(os.path.join(job, "supervisor.log"), "ab") as log:
        child = subprocess.Popen(
            python_argv("supervisor", job),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": os.environ.get("HOME", "/")},
            start_new_session=True,
            preexec_fn=_become_subreaper,  # noqa: PLW1509 (one call into a library that is loaded)
        )
    _children.append(child)


def reap_supervisors() -> None:
    _children[:] = [child for child in _children if child.poll() is None]


# --- asking ---------------------------------------------------------------------------------------------------------


def read_status(layout: Layout, ledger: Ledger, attempt_id: str) -> AttemptStatus:
    row = ledger.find(attempt_id)
    if row is None:
        return AttemptStatus(attempt_id, "unknown")
    if row["state"] == "tombstoned":
        return AttemptStatus(attempt_id, "tombstoned")
    spec = loads(JobSpec, row["spec"], where="ledger", code="LEDGER_DAMAGED")
    launched = read_launched(layout, attempt_id, spec.nonce)
    state = "ended" if row["state"] == "ended" else "accepted"
    if state == "accepted" and read_exited(layout, attempt_id, spec.nonce):
        state = "exited"
    elif state == "accepted" and launched:
        state = "launched"
    end = loads(End, row["end"], where="ledger", code="LEDGER_DAMAGED") if row["end"] else None
    return AttemptStatus(
        attempt_id,
        state,
        session_id=read_session(layout, spec.task_id),
        accepted_at=row["accepted_at"],
        launched_at=launched.at if launched else None,
        ended_at=row["ended_at"],
        pid=launched.pid if launched and state == "launched" else None,
        cancel_requested=os.path.exists(os.path.join(layout.job(attempt_id), "cancel")),
        end=end,
        notices=decode(Tuple[str, ...], json.loads(row["notices"])),
    )


def read_session(layout: Layout, task_id: str) -> Optional[str]:
    try:
        with open(layout.session(task_id), encoding="utf-8") as file:
            return file.read().strip() or None
    except FileNotFoundError:
        return None


def cancel_attempt(layout: Layout, ledger: Ledger, attempt_id: str, actor: str) -> AttemptStatus:
    """The intent is a file that the supervisor looks for; the signal only wakes it. Repeating is harmless."""
    row = ledger.find(attempt_id)
    if row is not None and row["state"] == "accepted":
        path = os.path.join(layout.job(attempt_id), "cancel")
        if not os.path.exists(path):
            write_durably(path, actor.encode("utf-8", "surrogateescape") + b"\n")
            ledger.note(actor, "cancel", attempt_id)
        seen = read_supervisor(layout, attempt_id)
        if seen and seen.get("boot_id") == read_boot_id():
            signal_process(seen["pid"], seen.get("start_time"), signal.SIGUSR1)
    return read_status(layout, ledger, attempt_id)


def supervisor_state(layout: Layout, attempt_id: str) -> str:
    """`starting`, `alive` or `dead`; starting for ten seconds at most, after which a start may be tried again."""
    seen = read_supervisor(layout, attempt_id)
    if seen is not None:
        return "alive" if judge_process(seen["pid"], seen.get("start_time"), seen["boot_id"]) == ALIVE else "dead"
    try:
        age_s = time.time() - os.stat(os.path.join(layout.job(attempt_id), "launch")).st_mtime
    except FileNotFoundError:
        return "starting"  # never launched: it may be started
    return "starting" if 0 <= age_s < 10 else "dead"


# --- closing --------------------------------------------------------------------------------------------------------


def close_task(layout: Layout, ledger: Ledger, ask: CloseAsk) -> Closed:
    """Remove the workspace, the jobs' files and the task's refs. Refused while an attempt is not ended.

    The head that home has must be the one that the last turn published, unless `delivered_oid` is None (discard).
    """
    with task_lock(layout, ask.task_id):
        attempts = ledger.attempts_of(ask.task_id)
        if any(row["state"] == "accepted" for row in attempts):
            raise ShunterError("TASK_BUSY", f"task {ask.task_id} has a turn that is not over on this host")
        if ask.delivered_oid is not None:
            _require_delivered(layout, ask, attempts)
        kept = [f"{each.path}: {each.reason}" for each in remove_workspace(layout.workspace(ask.task_id))]
        for row in attempts:
            shutil.rmtree(layout.job(row["attempt_id"]), ignore_errors=True)
            for kind in ("launched", "exited", "completed", "failed"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(layout.signal(row["attempt_id"], kind))
        if not kept:
            shutil.rmtree(layout.task(ask.task_id), ignore_errors=True)
            drop_task_refs(layout.mirror(ask.project_id), ask.task_id)
        ledger.close_task(ask.task_id, actor=ask.actor, detail="discard" if ask.delivered_oid is None else "delivered")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(layout.task_lock(ask.task_id))
    return Closed(removed=not kept, kept=tuple(kept))


def _require_delivered(layout: Layout, ask: CloseAsk, attempts: List[Dict[str, object]]) -> None:
    for row in reversed(attempts):
        end = loads(End, str(row["end"]), where="ledger", code="LEDGER_DAMAGED")
        if end.publication is not None:
            if end.publication.head_oid != ask.delivered_oid:
                text = f"home has {ask.delivered_oid}, the last turn published {end.publication.head_oid}"
                raise ShunterError("RESULT_UNDELIVERED", text, hint="shunter fetch, or close --discard")
            return
    if attempts and os.path.isdir(layout.workspace(ask.task_id)):
        raise ShunterError(
            "RESULT_UNDELIVERED", "no turn of this task published its work", hint="shunter close --discard"
        )
