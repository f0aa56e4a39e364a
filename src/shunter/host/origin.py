"""Git between a host and an origin, with the account's own credentials: fetch one commit, look, push one branch.

The account's own git configuration counts here (credential helpers, insteadOf, proxies), its hooks and everything that
could ask a person do not. The environment is the login shell's, so that a turn and this see the same account. Each
command is bounded in time, and what git says is passed on without credentials.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from ..wire.errors import CODES, ShunterError
from ..wire.ids import checked_oid
from ..wire.origin import checked_url, origin_host, sanitised
from .environment import KEY_AGENT, load_account_environment
from .gitrun import GitResult, is_disk_full, run_git
from .layout import Layout
from .mirror import base_ref, pin_base

LOOK_LIMIT_S = 60.0
MOVE_LIMIT_S = 1500.0  # less than home waits for the answer
PROTOCOLS = "https:http:ssh:git:file"
# A connection that stands still is given up long before the limit.
CONFIG = ("http.lowSpeedLimit=100", "http.lowSpeedTime=60", "credential.interactive=false", "push.followTags=false")
# A connection that the account keeps open may be used; one that we opened would keep our pipes.
SSH_OPTIONS = (
    "-o BatchMode=yes -o ControlMaster=no -o ConnectTimeout=20 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
)
QUIETLY = (
    "--quiet",
    "--no-tags",
    "--no-write-fetch-head",
    "--no-recurse-submodules",
    "--no-auto-maintenance",
    "--no-prune",
)

_AUTH = re.compile(
    r"Authentication failed|could not read (Username|Password)|Permission denied|Host key verification failed"
    r"|terminal prompts disabled|returned error: 40[13]|access denied|Invalid credentials|Access denied"
    r"|[Rr]epository .*not found|returned error: 404|does not appear to be a git repository|No such identity"
    r"|Permission to \S+ denied|not authorized|protocol '.*' is not supported|transport '.*' not allowed"
    r"|detected dubious ownership",
)
_UNREACHABLE = re.compile(
    r"Could not resolve|[Cc]onnection (refused|timed out|reset|closed)|Failed to connect|Couldn't connect|timed? ?out"
    r"|Network is unreachable|No route to host|hung up|early EOF|returned error: (429|5\d\d)|Empty reply"
    r"|unable to access|Could not read from remote repository|did not end within|unable to connect"
    r"|unexpected disconnect|transfer closed",
)
_ABSENT = re.compile(
    r"not our ref|unadvertised object|couldn't find remote ref|no such remote ref|not found in upstream"
)


class Origin:
    """One origin as an account sees it."""

    def __init__(self, url: str, environment: Mapping[str, str]) -> None:
        self.url = checked_url(url)
        self.environment = environment
        self.keep: Tuple[int, ...] = ()  # locks that hold as long as a git of ours runs, whatever becomes of us

    def git(
        self, args: Sequence[str], *, git_dir: Optional[str], limit_s: float, config: Tuple[str, ...] = ()
    ) -> GitResult:
        """Run it; a timeout is a result like any other failure."""
        env = {"GIT_ALLOW_PROTOCOL": PROTOCOLS, "GIT_SSH_COMMAND": self.ssh_command(), "GIT_ASKPASS": "true"}
        env["SSH_ASKPASS_REQUIRE"] = "never"
        try:
            return run_git(
                args,
                git_dir=git_dir,
                env=env,
                config=(*CONFIG, *config),
                user_config=True,
                base=self.environment,
                timeout_s=limit_s,
                keep=self.keep,
                allowed=(),
            )
        except ShunterError as exc:
            if "did not end within" not in exc.text:
                raise
            return GitResult(124, b"", exc.text.encode())

    def ssh_command(self) -> str:
        asked = run_git(["config", "core.sshCommand"], user_config=True, base=self.environment, allowed=())
        return quiet_ssh(asked.text.strip() if asked.status == 0 else "")

    def heads(self, *names: str) -> Dict[str, str]:
        """Object ids of refs by name. Raises what keeps origin from being asked."""
        done = self.git(["ls-remote", "--quiet", "--", self.url, *names], git_dir=None, limit_s=LOOK_LIMIT_S)
        if done.status != 0:
            raise self.failure(done)
        found = {}
        for line in done.out.decode("utf-8", "surrogateescape").splitlines():
            oid, _, name = line.partition("\t")
            found[name] = oid
        return found

    def failure(self, done: GitResult) -> ShunterError:
        return failure_of(self.url, done)


def quiet_ssh(own: str) -> str:
    """An account's own ssh command ("": plain ssh), made unable to ask anybody or to wait for ever."""
    try:
        words = shlex.split(own)
    except ValueError:
        return own  # git will say what is wrong with it
    if own and os.path.basename(words[0] if words else "") != "ssh":
        return own
    return f"{own or 'ssh'} {SSH_OPTIONS}"


def failure_of(url: str, done: GitResult) -> ShunterError:
    """What a failed command means, with git's own words."""
    text, said = done.err.decode("utf-8", "replace"), words_of(done.err)
    told = said if url in said else f"{url}: {said}"
    if is_disk_full(done.err):
        return ShunterError("DISK_FULL", f"no room while talking to {url}: {said}")
    if _AUTH.search(text):
        hint = f"`git ls-remote {url}` must work for that account without asking: an ssh key, or a credential helper"
        return ShunterError("ORIGIN_AUTH", told, hint=hint)
    if _UNREACHABLE.search(text):
        return ShunterError("ORIGIN_UNREACHABLE", told)
    return ShunterError("GIT_FAILED", told)


def open_origin(layout: Layout, url: str) -> Origin:
    environment = dict(load_account_environment(layout))
    # The ssh agent of a session on this very machine is the account's own; one that ssh forwards is somebody else's.
    if KEY_AGENT not in environment and KEY_AGENT in os.environ and "SSH_CONNECTION" not in os.environ:
        environment[KEY_AGENT] = os.environ[KEY_AGENT]
    return Origin(url, environment)


_BOILERPLATE = ("Please make sure", "and the repository exists", "hint:", "warning:", "To ", "Everything up-to-date")


def words_of(err: bytes) -> str:
    """What git's stderr says on one line, of the other side first; ssh's own words stand among git's."""
    lines = [line.strip() for line in err.decode("utf-8", "replace").splitlines() if line.strip()]
    theirs = [line[len("remote:") :].strip() for line in lines if line.startswith("remote:")]
    ours = [line for line in lines if not line.startswith(("remote:", "!", *_BOILERPLATE))]
    told = dict.fromkeys(filter(None, [*theirs, *(re.sub(r"\A(fatal|error): ", "", line) for line in ours)]))
    return sanitised("; ".join(list(told)[:8])) or "no message"


def fetch_base(layout: Layout, mirror: str, *, task_id: str, oid: str, url: str) -> None:
    """Bring exactly this commit into the mirror and pin it; harmless when it is there.

    Raises BASE_UNAVAILABLE when trying again cannot help, ORIGIN_UNREACHABLE or DISK_FULL when it can.
    """
    origin = open_origin(layout, url)
    ref = base_ref(task_id)
    done = origin.git(
        ["fetch", *QUIETLY, "--", origin.url, f"+{checked_oid(oid)}:{ref}"], git_dir=mirror, limit_s=MOVE_LIMIT_S
    )
    if pin_base(mirror, task_id, oid):
        return
    if done.status == 0 or _ABSENT.search(done.err.decode("utf-8", "replace")):
        # It may only give what it advertises. Its branches and tags are kept, so the next one fetches what is new.
        kept = f"refs/shunter/origin/{_slug(origin.url)}"
        refspecs = [f"+refs/heads/*:{kept}/heads/*", f"+refs/tags/*:{kept}/tags/*"]
        done = origin.git(["fetch", *QUIETLY, "--", origin.url, *refspecs], git_dir=mirror, limit_s=MOVE_LIMIT_S)
        if pin_base(mirror, task_id, oid):
            return
        if done.status == 0:
            text = f"commit {oid} is not on {origin.url} any more: no branch or tag there leads to it"
            raise ShunterError("BASE_UNAVAILABLE", text, hint="push it, or submit again without --source origin")
    raise _base_error(origin.failure(done), oid)


def _base_error(failure: ShunterError, oid: str) -> ShunterError:
    if CODES[failure.code].retryable and failure.code != "GIT_FAILED":
        return failure
    text = f"commit {oid} could not be fetched: {failure.code}: {failure.text}"
    return ShunterError("BASE_UNAVAILABLE", text, hint=failure.hint)


def _slug(url: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", origin_host(url).lower()).strip("-") + "-" + _digest(url)


def _digest(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def origin_lock(layout: Layout, url: str) -> str:
    """Held while something is pushed there from this host."""
    return os.path.join(layout.locks, "origin-" + _digest(url))


def push_branch(origin: Origin, mirror: str, *, branch: str, oid: str, expected: Optional[str]) -> None:
    """Let the branch go from `expected` (None: it must not exist) to `oid`, or raise; the server checks it atomically.

    Judged by the server's report for the ref. Raises BRANCH_TAKEN, PUBLISH_REFUSED, ORIGIN_AUTH, ORIGIN_UNREACHABLE or
    PUBLISH_FAILED.
    """
    ref = "refs/heads/" + branch
    done = origin.git(
        push_args(origin.url, f"{checked_oid(oid)}:{ref}", ref, expected), git_dir=mirror, limit_s=MOVE_LIMIT_S
    )
    raise_unless_taken(origin, done, ref)


def push_args(url: str, refspec: str, ref: str, expected: Optional[str]) -> List[str]:
    return [
        *("push", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--recurse-submodules=no"),
        *(f"--force-with-lease={ref}:{expected or ''}", "--", url, refspec),
    ]


def raise_unless_taken(origin: Origin, done: GitResult, ref: str) -> None:
    lines = done.out.decode("utf-8", "replace").splitlines()
    report = next((line for line in lines if line[1:2] == "\t" and line.split("\t")[1].endswith(":" + ref)), "")
    if done.status == 0 and report[:1] in (" ", "+", "*", "=", "-"):
        return
    if report[:1] != "!":
        failure = origin.failure(done)
        denied = re.search(r"returned error: 403|denied|DENIED", done.err.decode("utf-8", "replace"))
        if failure.code == "ORIGIN_AUTH" and denied and "publickey" not in failure.text:
            failure = ShunterError("PUBLISH_REFUSED", failure.text, hint="give the host's account leave to push there")
        elif failure.code == "GIT_FAILED":
            failure = ShunterError("PUBLISH_FAILED", failure.text)
        raise failure
    reason = report.rsplit("\t", 1)[1]
    said = words_of(b"\n".join(line for line in done.err.splitlines() if line.startswith(b"remote:")))
    text = sanitised(
        f"{origin.url} did not take {ref}: {reason}" + (f"; it says: {said}" if said != "no message" else "")
    )
    if re.search(r"'refs/[^']*' exists", f"{reason} {said}"):  # "a" cannot stand beside "a/b"
        raise ShunterError("BRANCH_TAKEN", text)
    if is_disk_full(done.err) or re.search(r"cannot lock|failed to (update|lock)|remote failure", reason):
        raise ShunterError("PUBLISH_FAILED", text)
    if reason.startswith("[rejected]"):
        raise ShunterError("BRANCH_TAKEN", text)
    raise ShunterError("PUBLISH_REFUSED", text, hint="look at the rules of that repository")
