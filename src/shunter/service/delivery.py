"""`--source origin` and `--publish push` at submit: what is wished, and whether it can be. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..fleet.config import Config
from ..git.origin import OriginPlace, ask_origin, checked_branch, find_origin, has_commit, refuse_standing_branch
from ..git.repository import Repository
from ..git.transfer import Transfer
from ..model.records import Options, Push, Task
from ..model.states import PushState
from ..wire.errors import ShunterError
from ..wire.origin import capability


@dataclass(frozen=True, slots=True)
class Wish:
    fetches: bool
    pushes: bool
    branch: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the task is given along; `branch` None: nothing is pushed."""

    place: OriginPlace
    fetches: bool
    branch: str | None
    warnings: tuple[str, ...]

    @property
    def options(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.fetches:
            found |= {"source": "origin", "origin_url": self.place.url}
        if self.branch is not None:
            found |= {"push_url": self.place.push_url, "push_branch": self.branch}
        return found

    def push(self, task: Task) -> Push | None:
        if self.branch is None:
            return None
        place = self.place
        return Push(task.id, place.name, place.push_url, self.branch, PushState.PLANNED, task.created_at)


def capabilities_of(options: Options) -> tuple[str, ...]:
    """What a host needs, in a fixed order: equal wishes are one shape of the queue."""
    return tuple(sorted({capability(url) for url in (options.origin_url, options.push_url) if url is not None}))


def wished_delivery(config: Config, *, wip: bool, branch: str | None) -> Wish | None:
    """None: the base comes from home and the result goes home. What cannot go together is refused here."""
    fetches = config.value("defaults.source") == "origin"
    pushes = config.value("defaults.publish") == "push"
    if branch is not None and not pushes:
        raise ShunterError("USAGE", "--publish-branch names a branch of origin", hint="add --publish push")
    if not fetches and not pushes:
        return None
    hint = "commit what belongs to it and leave --wip out; --base HEAD overrules a configured wip"
    if pushes and wip:
        text = "a result on top of uncommitted work cannot go to origin: that work would go there too"
        raise ShunterError("PUBLISH_REQUIRES_COMMITTED_BASE", text, hint=hint)
    if fetches and wip:
        raise ShunterError("USAGE", "--wip is what origin does not have, so it cannot come from there", hint=hint)
    return Wish(fetches, pushes, None if branch is None else checked_branch(branch))


def check_delivery(wish: Wish, repo: Repository, transfer: Transfer, base_oid: str, task_id: str) -> Delivery:
    """Raises ORIGIN_UNKNOWN, BASE_NOT_ON_ORIGIN, BRANCH_TAKEN; ORIGIN_UNREACHABLE or ORIGIN_AUTH when nobody knows.

    The base must be there for a push too: otherwise commits would go along that are not the task's own.
    """
    place = find_origin(repo)
    view = ask_origin(repo)
    known = has_commit(repo, transfer, base_oid, view)
    warnings = []
    if known is None:
        why = view.unanswered or ShunterError("ORIGIN_UNREACHABLE", f"{place.url} could not be asked about {base_oid}")
        hint = why.hint or "try again, or submit without --source origin and --publish push"
        raise ShunterError(why.code, f"whether origin has the base is not known: {why.text}", hint=hint)
    if not known:
        keeps = "--source origin" if wish.fetches else "--publish push"
        hint = f"git push origin HEAD, or submit without {keeps}"
        text = f"commit {base_oid} is on no branch or tag of origin ({place.url})"
        if not wish.fetches:
            text += ", so commits that are not the task's own would go there with the result"
        raise ShunterError("BASE_NOT_ON_ORIGIN", text, hint=hint)
    if view.unanswered is not None:
        warnings.append(f"origin did not answer here ({view.unanswered.text}); it had the base when you last fetched")
    branch = None
    if wish.pushes:
        branch = wish.branch or f"shunter/{task_id}"
        refuse_standing_branch(repo, view, branch)
    return Delivery(place, wish.fetches, branch, tuple(warnings))


def refuse_incapable(config: Config, host: str | None, capabilities: tuple[str, ...]) -> None:
    """CAPABILITY_MISSING for a task that is pinned to a host without what it needs (T18)."""
    for each in config.hosts:
        missing = sorted(set(capabilities) - set(each.tags))
        if each.name == host and missing:
            text = f"host {host} is not declared to work with origin: it lacks {', '.join(missing)}"
            raise ShunterError("CAPABILITY_MISSING", text, hint=_remedy(host, missing))


def warn_incapable(config: Config, capabilities: tuple[str, ...]) -> tuple[str, ...]:
    if any(each.enabled and set(capabilities) <= set(each.tags) for each in config.hosts):
        return ()
    words = ", ".join(capabilities)
    return (f"no host has {words}, so the task waits; {_remedy('NAME', list(capabilities))}",)


def _remedy(host: str, missing: list[str]) -> str:
    tags = ", ".join(f'"{each}"' for each in missing)
    return f"`shunter host check {host} --origin URL` proves it; then its entry gets tags = [{tags}]"
