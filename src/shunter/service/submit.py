"""Submitting: capture the base, store task, turn and row in one transaction, wake the dispatcher, return the id.

Everything that can be refused is refused before anything is created (T4, P15). The prompt goes into a private file.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..agents.table import parse_name
from ..dispatch.job import launch_of
from ..fleet.config import COMMAND_LINE, Config
from ..git.capture import Base, capture_base
from ..git.forget import forget_task
from ..git.repository import Repository, open_repository
from ..git.transfer import open_transfer
from ..model.brief import Brief
from ..model.records import Event, Options, Project, Requirements, Row, Task, Turn, sanitised_summary
from ..model.states import Step, TaskState, TurnState
from ..store.briefs import remove_brief, write_brief
from ..wire.errors import ShunterError
from ..wire.ids import new_task_id, turn_id
from ..wire.messages import PROMPT_LIMIT_BYTES, Limits
from .delivery import capabilities_of, check_delivery, refuse_incapable, warn_incapable, wished_delivery
from .home import Home
from .stops import account_named, account_of, find_stopped, warn_stopped
from .twins import refuse_twin


@dataclass(frozen=True, slots=True)
class SubmitAsk:
    """`given` holds what the command line gave, by the names of `[defaults]`; None means: as configured."""

    prompt: bytes
    given: Mapping[str, Any]
    title: str | None = None
    no_wait: bool = False
    publish_branch: str | None = None
    directory: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True, slots=True)
class Submitted:
    """`fault`: the task is stored, but no dispatcher could be started for it."""

    task: Task
    warnings: tuple[str, ...]
    fault: ShunterError | None = None


def checked_prompt(data: bytes) -> str:
    """Raises PROMPT_INVALID. Any UTF-8 text goes, a leading dash included; it never stands in an argument vector."""
    limit = PROMPT_LIMIT_BYTES
    if len(data) > limit:
        hint = "put long material into a file of the repository and name it in the prompt"
        raise ShunterError("PROMPT_INVALID", f"the prompt is longer than the limit of {limit} bytes", hint=hint)
    if b"\0" in data:
        raise ShunterError("PROMPT_INVALID", f"the prompt holds a NUL byte at offset {data.index(0)}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        what = f"byte {exc.start} is 0x{data[exc.start]:02x}"
        raise ShunterError("PROMPT_INVALID", f"the prompt is not UTF-8: {what}") from exc
    if not text.strip():
        raise ShunterError("PROMPT_INVALID", "the prompt is empty")
    return text


def submit_task(home: Home, ask: SubmitAsk, *, before_store: Callable[[], object] = lambda: None) -> Submitted:
    """`before_store` is called when all is ready: what comes after it either fails or leaves a task."""
    prompt = checked_prompt(ask.prompt)
    repo = open_repository(str(ask.directory))
    home.project_root = Path(repo.root)
    home.overrides = {f"defaults.{key}": value for key, value in ask.given.items()}
    config = home.config
    choice = resolve_agent(config)
    wanted_host = config.value("defaults.host")
    if wanted_host is not None:
        refuse_disabled(home, wanted_host)
        refuse_twin(home, wanted_host)
    rev, wip = wanted_base(config)
    if not wip and config.source("defaults.include") == COMMAND_LINE:
        hint = (
            "add --wip, or commit those files"
            if rev is None
            else "leave out --base and add --wip, or commit those files"
        )
        raise ShunterError("USAGE", "--include takes files of the working tree, which is not the base", hint=hint)
    wish = wished_delivery(config, wip=wip, branch=ask.publish_branch)
    if ask.no_wait:
        account = account_named(sanitised_summary(choice.name), config.value("defaults.env_profile"))
        refuse_when_busy(home, wanted_host, account)
    store = home.store  # opened before anything is written: a damaged store leaves nothing behind
    transfer = open_transfer(str(home.places.transfer_dir), repo)
    base = capture_base(repo, transfer, rev=rev, wip=wip, include=tuple(config.value("defaults.include")))
    task = _task(config, repo, base, choice, title=ask.title or _first_line(prompt))
    delivery = check_delivery(wish, repo, transfer, base.oid, task.id) if wish is not None else None
    if delivery is not None:
        task = replace(task, options=replace(task.options, **delivery.options))
        refuse_incapable(config, wanted_host, capabilities_of(task.options))
    turn = Turn(
        turn_id(task.id, 1),
        task.id,
        1,
        TurnState.QUEUED,
        Step.WAITING,
        task.created_at,
        account=account_of(task),
    )
    brief = _brief(config, repo, choice, prompt)
    # An option that the agent does not know is refused now, not on the host; what it has no sandbox for is known.
    launch = launch_of(task, brief, session_id=None, permission=task.permission)
    task = replace(task, permission=launch.permission)
    write_brief(home.places.prompts_dir, turn.id, brief)
    try:
        transfer.pin(task.id, base.oid)
        row = _row(task, turn, repo, choice)
        push = delivery.push(task) if delivery else None
        before_store()
        store.add_task(task, turn, row, _project(repo), _events(base, task), push=push)
    except BaseException:
        remove_brief(home.places.prompts_dir, turn.id)
        forget_task(home.places.transfer_dir, repo.repo_id, task.id)
        raise
    fault = None
    try:
        home.wake()
    except ShunterError as exc:
        fault = exc
    more = () if delivery is None else (*delivery.warnings, *warn_incapable(config, capabilities_of(task.options)))
    return Submitted(task, (*_warnings(base), *more, *warn_stopped(home, task)), fault)


def wanted_base(config: Config) -> tuple[str | None, bool]:
    """Revision, and whether to take the working tree. Either on the command line overrules the other's default."""
    rev, wip = config.value("defaults.base"), config.value("defaults.wip")
    if rev is not None and wip:
        said = {key for key in ("base", "wip") if config.source(f"defaults.{key}") == COMMAND_LINE}
        if said == {"wip"}:
            return None, True
        if said == {"base"}:
            return rev, False
    return rev, wip


@dataclass(frozen=True, slots=True)
class AgentChoice:
    name: str  # as the user wrote it
    adapter: str
    command: tuple[str, ...]
    env: dict[str, str]
    resume: tuple[str, ...]
    fields: dict[str, str]
    model: str | None
    effort: str | None
    permission: str


def resolve_agent(config: Config) -> AgentChoice:
    """An entry `[agents.<name>]` comes before a built-in name, and may refine it. Raises AGENT_UNKNOWN."""
    name = config.value("defaults.agent")
    if name is None:
        hint = "--agent codex, --agent claude, --agent 'exec:<command line>' or --agent 'acp:<command line>'"
        raise ShunterError("AGENT_UNKNOWN", "no agent was chosen and none is configured", hint=hint)
    entry = config.agents.get(name)
    parsed = parse_name(entry.adapter if entry else name)

    def setting(key: str) -> Any:
        """The command line comes before the agent's entry, and that before the defaults."""
        of_entry = getattr(entry, key) if entry else None
        given = config.source(f"defaults.{key}") == COMMAND_LINE
        return config.value(f"defaults.{key}") if given or of_entry is None else of_entry

    return AgentChoice(
        name=name,
        adapter=parsed.adapter,
        command=tuple(entry.command) if entry and entry.command else parsed.command,
        env=dict(entry.env) if entry else {},
        resume=entry.resume if entry else (),
        fields=dict(entry.fields) if entry else {},
        model=setting("model"),
        effort=setting("effort"),
        permission=setting("permission"),
    )


def refuse_disabled(home: Home, name: str) -> None:
    if not home.host(name).config.enabled:
        hint = "take `enabled = false` out of its entry, or choose another host"
        raise ShunterError("HOST_UNKNOWN", f"host {name} is switched off in the configuration", hint=hint)


def refuse_when_busy(home: Home, host: str | None, account: str | None) -> None:
    """CAPACITY_BUSY before any row, snapshot, lease or remote change exists (P15)."""
    hint = "without --no-wait the task is queued"
    hosts = [each for each in home.config.hosts if each.enabled and host in (None, each.name)]
    from .pool import observe_pool  # asks hosts, which no other submission does

    status = {each.name: each for each in observe_pool(home, anew={each.name for each in hosts})}
    unable = {each.name: each for each in status.values() if each.state not in ("ready", "full")}
    reasons = [
        f"{each.name}: {unable[each.name].reason or unable[each.name].state}" for each in hosts if each.name in unable
    ]
    hosts = [each for each in hosts if each.name not in unable]
    if reasons and not hosts:
        raise ShunterError("CAPACITY_BUSY", "; ".join(reasons), hint=hint)
    waiting = 0
    if home.was_used:
        stopped = find_stopped(home, account, hosts)
        if hosts and len(stopped) == len(hosts):
            raise ShunterError("CAPACITY_BUSY", "; ".join(stopped.values()), hint=hint)
        hosts = [each for each in hosts if each.name not in stopped]
        waiting = sum(turn.host is None for turn in home.store.open_turns())
    taken = waiting + sum(status[each.name].slots_used for each in hosts)
    slots = sum(each.slots for each in hosts)
    if taken >= slots:
        raise ShunterError("CAPACITY_BUSY", f"no slot is free: {taken} of {slots} taken or waited for", hint=hint)


def _first_line(prompt: str) -> str:
    return next((line for line in prompt.splitlines() if line.strip()), prompt)


def _task(config: Config, repo: Repository, base: Base, choice: AgentChoice, *, title: str) -> Task:
    task_id = new_task_id()
    timeout_s = config.value("defaults.timeout")
    return Task(
        id=task_id,
        title=sanitised_summary(title),
        agent=sanitised_summary(choice.name),
        state=TaskState.QUEUED,
        project_id=repo.project_id,
        repo_id=repo.repo_id,
        worktree_id=repo.worktree_id,
        base_oid=base.oid,
        base_kind=base.kind,
        branch=f"task/{task_id}",
        created_at=time.time(),
        model=choice.model,
        effort=choice.effort,
        permission=choice.permission,
        pinned_host=config.value("defaults.host"),
        options=Options(
            timeout_s=config.value("limits.timeout") if timeout_s is None else timeout_s,
            max_turns=config.value("defaults.max_turns"),
            max_budget_usd=config.value("defaults.max_budget_usd"),
            max_followups=config.value("defaults.max_followups"),
            close_on=config.value("defaults.close_on"),
            env_profile=config.value("defaults.env_profile"),
            memory_mb=config.value("defaults.memory_mb"),
            priority=config.value("defaults.priority"),
        ),
    )


def _brief(config: Config, repo: Repository, choice: AgentChoice, prompt: str) -> Brief:
    return Brief(
        prompt=prompt,
        adapter=choice.adapter,
        command=choice.command,
        identity_name=repo.user_name or "shunter",
        identity_email=repo.user_email or "shunter@localhost",
        limits=Limits(
            term_grace_s=config.value("limits.term_grace_s"),
            background_grace_s=config.value("limits.background_grace_s"),
            quiet_s=config.value("limits.quiet_s"),
            silent_s=config.value("limits.silent_s"),
            output_cap_bytes=config.value("limits.output_cap_mb") << 20,
            tail_bytes=config.value("limits.tail_kb") << 10,
        ),
        new_session_id=str(uuid.uuid4()),
        env=choice.env,
        resume=choice.resume,
        fields=choice.fields,
        permission=choice.permission,
    )


def _row(task: Task, turn: Turn, repo: Repository, choice: AgentChoice) -> Row:
    return Row(
        turn_id=turn.id,
        task_id=task.id,
        summary=task.title,
        requirements=requirements_of(task, choice.adapter, repo.object_format),
        priority=task.options.priority,
        pinned_host=task.pinned_host,
    )


def requirements_of(task: Task, adapter: str, object_format: str) -> Requirements:
    return Requirements(
        agent=f"{adapter}@{task.options.env_profile}" if task.options.env_profile else adapter,
        slots=task.options.slots,
        memory_mb=task.options.memory_mb,
        object_format=object_format,
        capabilities=capabilities_of(task.options),
        project_id=task.project_id,
        worktree_id=task.worktree_id,
        account=account_of(task),
    )


def _project(repo: Repository) -> Project:
    return Project(
        project_id=repo.project_id,
        repo_id=repo.repo_id,
        worktree_id=repo.worktree_id,
        worktree=repo.root,
        common_dir=repo.common_dir,
        object_format=repo.object_format,
        name=repo.name,
    )


def _events(base: Base, task: Task) -> tuple[Event, ...]:
    reason = f"base {base.oid} ({base.kind})"
    return (Event(at=task.created_at, kind="captured", actor="user", task_id=task.id, reason=reason),)


def _warnings(base: Base) -> tuple[str, ...]:
    found = list(base.notices)
    if base.kind == "commit" and base.dirty_count:
        found.append(f"{base.dirty_count} uncommitted changes are not part of the base; --wip takes them along")
    if base.kind == "wip" and base.untracked:
        names = ", ".join(base.untracked[:5]) + (" …" if len(base.untracked) > 5 else "")
        found.append(f"{len(base.untracked)} untracked files are left out: {names}; --include takes them along")
    return tuple(found)
