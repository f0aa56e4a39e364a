"""What the user's origin has, asked with the user's own configuration. The user's repository is only read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shunter.host.gitrun import GitResult, run_git
from shunter.host.origin import QUIETLY, failure_of, quiet_ssh
from shunter.wire.errors import ShunterError
from shunter.wire.origin import public_url, sanitised

from .project import normalise_origin
from .repository import Repository
from .transfer import Transfer

ASK_LIMIT_S = 60.0
FETCH_LIMIT_S = 600.0
NAME_LIMIT = 200
_TIPS = 64
_UNKNOWN_HEADS = 256


@dataclass(frozen=True, slots=True)
class OriginPlace:
    """Where the project's origin is, as a host may be told; `name` is the same for every way to reach it."""

    url: str
    push_url: str
    name: str


@dataclass(frozen=True, slots=True)
class OriginView:
    """Its branches and tags now, by full ref name; None when it could not be asked, and `unanswered` says why."""

    refs: dict[str, str] | None
    default_branch: str | None = None
    unanswered: ShunterError | None = None


def find_origin(repo: Repository) -> OriginPlace:
    """The addresses after the user's own rewriting (insteadOf, pushurl), without credentials. Raises ORIGIN_UNKNOWN."""
    hint = "git remote add origin URL, or submit without --source origin and --publish push"
    if repo.origin is None:
        raise ShunterError("ORIGIN_UNKNOWN", f"{repo.root} has no remote called origin", hint=hint)
    urls = []
    for option in ((), ("--push",)):
        args = ["remote", "get-url", *option, "origin"]
        found = run_git(args, git_dir=repo.git_dir, cwd=repo.root, user_config=True, own=False, allowed=())
        urls.append(_public(found.text.split("\n")[0] if found.status == 0 else repo.origin, repo.root))
    url, push_url = urls
    if url is None or push_url is None:
        text = f"no host can be sent to the address of origin: {sanitised(repo.origin)}"
        raise ShunterError("ORIGIN_UNKNOWN", text, hint="an https, ssh or file URL, or user@machine:path")
    return OriginPlace(url, push_url, normalise_origin(push_url, relative_to=repo.root))


def _public(url: str, root: str) -> str | None:
    is_path = "://" not in url and not re.match(r"[^/]*:", url)
    return public_url(os.path.realpath(os.path.join(root, os.path.expanduser(url))) if is_path else url)  # noqa: PTH111, PTH118


def ask_origin(repo: Repository) -> OriginView:
    """Never raises what an origin can cause: not to be answered is no answer."""
    args = ["ls-remote", "--quiet", "--symref", "--", "origin", "HEAD", "refs/heads/*", "refs/tags/*"]
    try:
        done = _remote_git(repo, args, git_dir=repo.git_dir, limit_s=ASK_LIMIT_S)
    except ShunterError as exc:
        return OriginView(None, unanswered=ShunterError("ORIGIN_UNREACHABLE", sanitised(exc.text)))
    if done.status != 0:
        return OriginView(None, unanswered=failure_of(sanitised(repo.origin or "origin"), done))
    refs, default = {}, None
    for line in done.out.decode("utf-8", "surrogateescape").splitlines():
        what, _, name = line.partition("\t")
        if what.startswith("ref: "):
            default = what.removeprefix("ref: refs/heads/") if name == "HEAD" else default
        elif name.startswith(("refs/heads/", "refs/tags/")):
            refs[name] = what
    return OriginView(refs, default)


def has_commit(repo: Repository, transfer: Transfer, oid: str, view: OriginView) -> bool | None:
    """Whether a branch or tag of origin leads to the commit. None: it could not be asked, and nobody knew before.

    What the repository does not know of origin's branches is fetched into the transfer repository, from the commit on.
    """
    if view.refs is None:
        known = ["for-each-ref", "--count=1", f"--contains={oid}", "--format=%(refname)", "refs/remotes/origin/"]
        return True if _ask(repo.git_dir, known).out else None
    if oid in view.refs.values() or _leads_to(repo.git_dir, oid, view.refs.values()):
        return True
    unknown = [name for name, head in view.refs.items() if name.startswith("refs/heads/") and not _has(repo, head)]
    if not unknown:
        return False
    tips = [f"--negotiation-tip={oid}"]
    tips += [f"--negotiation-tip={head}" for head in list(view.refs.values())[:_TIPS] if _has(repo, head)]
    args = ["fetch", *QUIETLY, *tips, "--", "origin", *unknown[:_UNKNOWN_HEADS]]
    # The address may hold a password, so it goes by the environment and not by the argument vector.
    config = {"safe.directory": "*", "remote.origin.url": repo.origin or ""}
    env = {"GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    done = _remote_git(repo, args, git_dir=transfer.path, limit_s=FETCH_LIMIT_S, more=env)
    if done.status != 0:
        return None
    return _leads_to(transfer.path, oid, view.refs.values())


def _leads_to(git_dir: str, oid: str, heads: Iterable[str]) -> bool:
    lines = "".join(f"^{head}\n" for head in sorted(set(heads)))
    args = ["rev-list", "--ignore-missing", "--max-count=1", "--stdin"]
    found = run_git(args, git_dir=git_dir, stdin=f"{oid}\n{lines}".encode(), own=False, allowed=())
    return found.status == 0 and not found.out.strip()


def _has(repo: Repository, oid: str) -> bool:
    return _ask(repo.git_dir, ["cat-file", "-e", oid]).status == 0


def _ask(git_dir: str, args: list[str]) -> GitResult:
    return run_git(args, git_dir=git_dir, own=False, allowed=())


def _remote_git(
    repo: Repository, args: list[str], *, git_dir: str, limit_s: float, more: Mapping[str, str] = MappingProxyType({})
) -> GitResult:
    """With the user's configuration and keys; nobody is asked for a password."""
    own = os.environ.get("GIT_SSH_COMMAND", "")
    if not own:
        found = run_git(
            ["config", "core.sshCommand"], git_dir=repo.git_dir, cwd=repo.root, user_config=True, own=False, allowed=()
        )
        own = found.text.strip() if found.status == 0 else ""
    env = {"GIT_SSH_COMMAND": quiet_ssh(own), **more}
    return run_git(
        args,
        git_dir=git_dir,
        cwd=repo.root,
        env=env,
        user_config=True,
        own=git_dir != repo.git_dir,
        timeout_s=limit_s,
        allowed=(),
    )


def checked_branch(name: str) -> str:
    """A name for a branch of origin; raises BRANCH_INVALID."""
    found = run_git(["check-ref-format", "refs/heads/" + name], allowed=()) if "\0" not in name else None
    odd = name.startswith(("-", "refs/")) or name in ("HEAD", "@") or any(not each.isprintable() for each in name)
    if found is None or found.status != 0 or odd or len(name.encode("utf-8", "replace")) > NAME_LIMIT:
        hint = "such as fix/login; see `git help check-ref-format`"
        raise ShunterError("BRANCH_INVALID", f"{name!r} is no name for a branch", hint=hint)
    return name


def refuse_standing_branch(repo: Repository, view: OriginView, branch: str) -> None:
    """A branch is made, never moved: one that somebody works on or that origin has is not the task's."""
    hint = "give another name with --publish-branch"
    if branch in (repo.branch, view.default_branch):
        raise ShunterError("BRANCH_TAKEN", f"{branch} is the branch that you work on, or the default one", hint=hint)
    ref = "refs/heads/" + branch
    for name in view.refs or {}:
        if name == ref:
            raise ShunterError("BRANCH_TAKEN", f"origin has a branch {branch} already", hint=hint)
        if name.startswith(ref + "/") or ref.startswith(name + "/"):
            other = name.removeprefix("refs/heads/")
            raise ShunterError("BRANCH_TAKEN", f"origin has {other}, so it cannot have {branch}", hint=hint)
