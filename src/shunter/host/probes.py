"""Which agents this account has, of which version, and whether they are signed in (T18).

Asked of the agents themselves, by commands that start no refresh of a token, with the environment that a turn would
have: once for the account and once for each profile. Kept for 15 minutes in `agents.json`; what is older is asked again
in the background, by one process at a time, and until then it is what is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Dict, Optional, Tuple

from ..agents.table import COMMANDS, MODULES, load
from ..wire.codec import decode, encode
from ..wire.errors import ShunterError
from ..wire.messages import AgentFacts, JobSpec
from .durable import write_durably
from .environment import list_profiles, load_login_environment
from .flock import hold_lock, try_lock
from .layout import Layout

KEPT_S = 900.0
DOUBTED_S = 60.0  # a no, or no answer: somebody may be signing in right now
COMMAND_LIMIT_S = 20.0
ASKED_AT_ONCE = 4  # each is a program of some hundred megabytes


def agent_facts(layout: Layout, *, fresh: bool = False) -> Dict[str, AgentFacts]:
    """By `agent` and `agent@profile`; one that is not there is left out. `fresh`: asked now, which takes seconds."""
    known = _read(layout)
    if fresh or known is None:
        with hold_lock(os.path.join(layout.locks, "agents")):
            _refresh(layout, kept={})
        return _read(layout) or {}
    if not all(map(_is_fresh, known.values())) or _age_s(layout) >= (KEPT_S if known else DOUBTED_S):
        with contextlib.suppress(RuntimeError):  # the account may have no further thread
            threading.Thread(target=_refresh_unless_somebody_does, args=(layout,), daemon=True).start()
    return known


def known_version(layout: Layout, spec: JobSpec, path: str) -> Optional[str]:
    """Of the program that an attempt finds on this PATH, as it was told last; asks nobody.

    None when it is another program than the one that was asked, or a file that has changed since.
    """
    facts = (_read(layout) or {}).get(f"{spec.agent}@{spec.env_profile}" if spec.env_profile else spec.agent)
    program = shutil.which(spec.argv[0], path=path)
    if facts is None or program != facts.path:
        return None
    try:
        changed_at = max(os.stat(program).st_ctime, os.lstat(program).st_ctime)
    except OSError:
        return None
    return facts.version if changed_at < facts.checked_at else None


def _is_fresh(facts: AgentFacts) -> bool:
    doubted = facts.can_be_asked and not facts.signed_in
    return 0 <= time.time() - facts.checked_at < (DOUBTED_S if doubted else KEPT_S)


def _age_s(layout: Layout) -> float:
    try:
        return time.time() - os.stat(_path(layout)).st_mtime
    except OSError:
        return KEPT_S


def _path(layout: Layout) -> str:
    return os.path.join(layout.root, "agents.json")


def _read(layout: Layout) -> Optional[Dict[str, AgentFacts]]:
    """None when nobody asked yet."""
    try:
        with open(_path(layout), encoding="utf-8") as file:
            found: Dict[str, AgentFacts] = decode(Dict[str, AgentFacts], json.load(file))
            return found
    except (OSError, ValueError, ShunterError):
        return None


def _refresh_unless_somebody_does(layout: Layout) -> None:
    with try_lock(os.path.join(layout.locks, "agents")) as mine:
        if mine:
            _refresh(layout, kept={key: each for key, each in (_read(layout) or {}).items() if _is_fresh(each)})


def _refresh(layout: Layout, *, kept: Dict[str, AgentFacts]) -> None:
    account = load_login_environment(layout)
    for name in MODULES:
        load(name)  # here: threads that import modules of each other at once may find them half made
    wanted = {
        f"{name}@{profile}" if profile else name: (name, {**account, **variables})
        for profile, variables in [("", {}), *list_profiles().items()]
        for name in sorted(MODULES)
    }
    wanted = {key: words for key, words in wanted.items() if key not in kept}
    try:
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            answers = list(pool.map(lambda words: ask_agent(*words), wanted.values()))
    except RuntimeError:  # the account may have no further thread: one after the other, then
        answers = [ask_agent(*words) for words in wanted.values()]
    found = {**kept, **{key: facts for key, facts in zip(wanted, answers) if facts is not None}}
    with contextlib.suppress(OSError):  # advice; the next one asks again
        write_durably(_path(layout), json.dumps(encode(found)).encode())


def ask_agent(name: str, environment: Dict[str, str]) -> Optional[AgentFacts]:
    """None when its program is not there, and for `exec` and `acp`, which are no programs of their own."""
    adapter = load(name)
    program = shutil.which(adapter.version_argv()[0], path=environment.get("PATH"))
    if name in COMMANDS or program is None:
        return None
    version = _run((program, *adapter.version_argv()[1:]), environment)
    check = adapter.auth_check()
    signed_in: Optional[bool] = None
    if check is not None and any(environment.get(each) for each in check.variables):
        signed_in = True
    elif check is not None:
        status = _run((program, *check.argv), environment)[0]
        signed_in = {0: True, 1: False}.get(status) if status is not None else None
    told = version[1].strip().splitlines() if version[0] == 0 else []
    return AgentFacts(program, told[0][:80] if told else None, signed_in, check is not None, time.time())


def _run(argv: Tuple[str, ...], environment: Dict[str, str]) -> Tuple[Optional[int], str]:
    """Exit status (None: it did not end in time or could not start) and the beginning of its output."""
    try:
        child = subprocess.Popen(
            argv,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None, ""
    try:
        out = child.communicate(timeout=COMMAND_LIMIT_S)[0]
        return child.returncode, out[:4096].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return None, ""
