"""Taking an attempt on: prepare the workspace, store the attempt, then start its supervisor, then answer.

Every function may be repeated for the same ids. The order is what makes one launch the most there can be: files of the
job first, then the ledger's row, then the supervisor, which creates `supervisor` exclusively before it spawns.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from typing import Dict, List, Optional, Tuple

from ..agents.result import SCHEMA
from ..wire.errors import ShunterError
from ..wire.messages import AcceptAsk, AttemptStatus, JobSpec
from .detached import lingers, own_environment, spawn_detached
from .durable import disk_code, open_regular, sync_directory, write_durably
from .environment import load_login_environment, load_profile
from .flock import hold_lock
from .forkserver import LIBRARY
from .identity import load_host_id
from .layout import Layout
from .ledger import Ledger
from .remove import remove_tree
from .status import read_status
from .succession import find_start
from .workspace import Identity, ensure_workspace

START_LIMIT_S = 5.0


def python_argv(module: str, *arguments: str) -> Tuple[str, ...]:
    """This interpreter without site and environment, running `main()` of one of our modules."""
    code = f"import sys;sys.path.insert(0,{LIBRARY!r});from shunter.host.{module} import main;main()"
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


def accept_attempt(layout: Layout, ledger: Ledger, ask: AcceptAsk) -> AttemptStatus:
    """Raises CHECKOUT_FAILED and others before anything was stored; then no agent ever starts for the attempt.

    RESULT_UNKNOWN: home has a result of the task that is not here; once it is in the mirror, the same ask is taken.
    The status may be that of an earlier attempt: home had this host run the job before and lost the record of it.
    """
    spec = ask.spec
    refuse_unsupervised()
    if not spec.argv or not spec.argv[0]:
        raise ShunterError("PROTOCOL", "an attempt without a program")
    with hold_lock(layout.task_lock(spec.task_id)):
        standing = ledger.accepted_as(spec.job_id)
        if standing not in (None, spec.attempt_id):
            if spec.number > 1:  # a task's first message is always the same
                _require_same_message(layout, standing, ask)
            return read_status(layout, ledger, standing)
        if not ledger.was_accepted(spec, ask.token):
            before, notices = find_start(layout, ledger, spec)
            workspace = ensure_workspace(
                layout.workspace(spec.task_id),
                mirror=layout.mirror(spec.project_id),
                task_id=spec.task_id,
                base_oid=spec.base_oid,
                head_oid=before,
                identity=Identity(spec.identity_name, spec.identity_email),
            )
            if workspace.created and spec.number > 1 and not notices:
                notices = ("the workspace was gone and was made anew from the last result",)
            notices += workspace.notices
            try:
                write_job(layout, spec, prompt=ask.prompt, turn_base=before or spec.base_oid)
            except BaseException:
                remove_tree(layout.job(spec.attempt_id))
                raise
            ledger.accept(spec, ask.token, notices)
        status = read_status(layout, ledger, spec.attempt_id)
        if status.state == "accepted":
            start_supervisor(layout, spec.attempt_id)
    return status


def _require_same_message(layout: Layout, standing: str, ask: AcceptAsk) -> None:
    """A follow-up of the same number may be another one: both were said to the same records."""
    words = f"job {ask.spec.job_id} was accepted as {standing}, of which home has no record"
    hint = f"shunter say {ask.spec.task_id} … goes on from what is here"
    try:
        with open(open_regular(os.path.join(layout.job(standing), "prompt")), "rb") as file:
            said = file.read()
    except OSError as exc:
        text = f"{words}; its prompt cannot be compared ({exc.strerror})"
        raise ShunterError("ATTEMPT_CONFLICT", text, hint=hint) from exc
    if said != ask.prompt.encode("utf-8", "surrogateescape"):
        raise ShunterError("ATTEMPT_CONFLICT", f"{words}; that was another message", hint=hint)


def refuse_unsupervised() -> None:
    if not sys.platform.startswith("linux"):
        text = f"a process tree cannot be held together on {sys.platform} yet, so nothing is launched here"
        raise ShunterError("HOST_INCAPABLE", text)


def write_job(layout: Layout, spec: JobSpec, *, prompt: str, turn_base: str) -> None:
    """The job's directory, complete and durable before the ledger knows of the attempt."""
    job = layout.job(spec.attempt_id)
    remove_tree(job)  # of an acceptance that did not get as far as the ledger
    os.makedirs(os.path.join(job, "tmp"), mode=0o700)
    places = {
        "{workspace}": layout.workspace(spec.task_id),
        "{git_dir}": os.path.join(layout.workspace(spec.task_id), ".git"),
        "{job}": job,
        "{schema}": os.path.join(job, "schema.json"),
        "{last_message}": os.path.join(job, "last_message"),
        "{prompt_file}": os.path.join(job, "prompt"),
        "{tmp}": os.path.join(job, "tmp"),
        "{python}": sys.executable,
        "{helper}": LIBRARY,
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
    else:
        with contextlib.suppress(FileNotFoundError):  # of a session that this turn does not go on with
            os.unlink(layout.session(spec.task_id))
    sync_directory(job)
    sync_directory(os.path.dirname(job))


def _write(path: str, data: bytes) -> None:
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        raise ShunterError(disk_code(exc, "IO"), f"{path}: {exc.strerror}") from exc


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
        "host_id": load_host_id(layout.root),
        "data_root": layout.root,
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
    if any("\0" in value for _, value in pairs):
        raise ShunterError("PROTOCOL", "a NUL byte in the argument vector or environment of the agent")
    return b"".join(os.fsencode(key) + b"\0" + os.fsencode(value) + b"\0" for key, value in pairs)


def writable_cgroup() -> Optional[str]:
    """The cgroup (version 2) that this process is in, when it may make one below it.

    Not where supervisors get a user scope: the agent would be taken back into the session that they were kept out of.
    """
    if lingers():
        return None
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own = next(line[3:].strip() for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mount = next(line.split()[4] for line in file if " - cgroup2 " in line)
    except (OSError, StopIteration, IndexError):
        return None
    path = os.path.join(mount, own.lstrip("/"))
    return path if os.access(path, os.W_OK) else None


def start_supervisor(layout: Layout, attempt_id: str) -> None:
    """Harmless when one was started: the second finds its file `supervisor` and goes."""
    job = layout.job(attempt_id)
    if os.path.exists(os.path.join(job, "supervisor")):
        return
    if lingers() or not _starter.start(job):
        with open(os.path.join(job, "supervisor.log"), "ab") as log:
            _children.append(spawn_detached(python_argv("supervisor", job), output=log, subreaper=True))


class Starter:
    """The fork server of this session that starts supervisors; for any number of threads.

    Not where each supervisor gets a user scope of its own.
    """

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self, job: str) -> bool:
        """False when it is not known that it did. Raises OSError when the account may not start another process."""
        with self.guard:
            if self.process is None or self.process.poll() is not None:
                self.process = _spawn_fork_server()
            error = _ask(self.process, job)
            if error is None:
                self.process.kill()
        if error:
            raise OSError(error, os.strerror(error))
        return error == 0


def _spawn_fork_server() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        python_argv("supervisor"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        env=own_environment(),
        start_new_session=True,
    )


def _ask(server: subprocess.Popen[bytes], job: str) -> Optional[int]:
    """An errno, 0 when the supervisor was started; None without an answer."""
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.write(os.fsencode(job) + b"\n")
        poll = select.poll()
        poll.register(server.stdout, select.POLLIN)
        return int(server.stdout.readline()) if poll.poll(START_LIMIT_S * 1000) else None
    except (OSError, ValueError):
        return None


_starter = Starter()
_children: List[subprocess.Popen[bytes]] = []


def reap_supervisors() -> None:
    """Those that were started by exec."""
    _children[:] = [child for child in _children if child.poll() is None]
