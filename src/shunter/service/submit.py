"""Submitting: capture the base, store task, turn and row in one transaction, wake the dispatcher, return the id.

Everything that can be refused is refused before anything is created (T4, P15). The prompt goes into a private file.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from ..agents import contract
from ..agents.table import load, parse_name
from ..fleet.config import Config
from ..git.capture import Base, capture_base
from ..git.repository import Repository, open_repository
from ..git.transfer import open_transfer
from ..model.brief import Brief
from ..model.records import Event, Options, Project, Requirements, Row, Task, Turn, sanitised_summary
from ..model.states import Step, TaskState, TurnState
from ..store.briefs import remove_brief, write_brief
from ..wire.errors import ShunterError
from ..wire.ids import new_task_id, turn_id
from ..wire.messages import PROMPT_LIMIT_BYTES, Limits
from .home import Home


@dataclass(frozen=True, slots=True)
class SubmitAsk:
    """What the user asked for; None means: as configured."""

    prompt: bytes
    agent: str | None = None
    model: str | None = None
    effort: str | None = None
    base: str | None = None
    wip: bool = False
    include: tuple[str, ...] = ()
    timeout_s: float | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    max_followups: int | None = None
    close_on: str | None = None
    env_profile: str | None = None
    host: str | None = None
    title: str | None = None
    permission: str | None = None
    priority: int = 0
    memory_mb: int | None = None
    no_wait: bool = False
    directory: Path = field(default_factory=Path.cwd)


@dataclass(frozen=True, slots=True)
class Submitted:
    task: Task
    warnings: tuple[str, ...]


def checked_prompt(data: bytes) -> str:
    """Raises PROMPT_INVALID. Any UTF-8 text goes, a leading dash included; it never stands in an argument vector."""
    limit = PROMPT_LIMIT_BYTES
    if len(data) > limit:
        hint = "put long material into a file of the repository and name it in the prompt"
        raise ShunterError("PROMPT_INVALID", f"the prompt has {len(data)} bytes, the limit is {limit}", hint=hint)
    if b"\0" in data:
        raise ShunterError("PROMPT_INVALID", f"the prompt holds a NUL byte at offset {data.index(0)}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ShunterError("PROMPT_INVALID", f"the prompt is not UTF-8: byte {exc.start} is 0x{data[exc.start]:02x}") from exc
    if not text.strip():
        raise ShunterError("PROMPT_INVALID", "the prompt is empty")
    return text


def submit_task(home: Home, ask: SubmitAsk) -> Submitted:
    prompt = checked_prompt(ask.prompt)
    repo = open_repository(ask.directory)
    home.project_root = repo.worktree
    choice = resolve_agent(home.config, ask)
    if ask.host is not None:
        home.host(ask.host)
    if ask.no_wait:
        refuse_when_busy(home, ask)
    transfer = open_transfer(home.places.transfer_dir, repo)
    base = capture_base(repo, transfer, rev=ask.base, wip=ask.wip, include=ask.include)
    task_id = new_task_id()
    task = _task(task_id, ask, repo, base, choice, prompt)
    turn = Turn(turn_id(task_id, 1), task_id, 1, TurnState.QUEUED, Step.WAITING, task.created_at)
    brief = _brief(home.config, repo, choice, prompt, ask)
    _prove_launch(task, brief)
    home.store  # noqa: B018 (opened before anything is written, so that a damaged store leaves nothing behind)
    write_brief(home.places.prompts_dir, turn.id, brief)
    try:
        transfer.pin(task_id, base.oid)
        home.store.add_task(task, turn, _row(task, turn, repo), _project(repo), _events(base, task))
    except BaseException:
        remove_brief(home.places.prompts_dir, turn.id)
        transfer.unpin(task_id)
        raise
    home.wake()
    return Submitted(task, _warnings(base))


@dataclass(frozen=True, slots=True)
class AgentChoice:
    name: str  # as the user wrote it
    adapter: str
    command: tuple[str, ...]
    env: dict[str, str]
    model: str | None
    effort: str | None
    permission: str


def resolve_agent(config: Config, ask: SubmitAsk) -> AgentChoice:
    """An entry `[agents.<name>]` comes before a built-in name, and may refine it. Raises AGENT_UNKNOWN."""
    name = ask.agent or config.value("defaults.agent")
    if not name:
        hint = "--agent codex, --agent claude or --agent 'exec:<command line>'"
        raise ShunterError("AGENT_UNKNOWN", "no agent was chosen and none is configured", hint=hint)
    entry = config.agents.get(name)
    parsed = parse_name(entry.adapter if entry else name)
    return AgentChoice(
        name=name,
        adapter=parsed.adapter,
        command=tuple(entry.command) if entry and entry.command else parsed.command,
        env=dict(entry.env) if entry else {},
        model=ask.model or (entry.model if entry else None) or config.value("defaults.model"),
        effort=ask.effort or (entry.effort if entry else None) or config.value("defaults.effort"),
        permission=ask.permission or (entry.permission if entry else None) or config.value("defaults.permission"),
    )


def _prove_launch(task: Task, brief: Brief) -> None:
    """An option that the agent does not know is refused now, not on the host."""
    load(brief.adapter).launch(
        contract.Turn(
            command=brief.command,
            model=task.model,
            effort=task.effort,
            new_session_id=brief.new_session_id,
            permission=task.permission,
            max_turns=task.options.max_turns,
            max_budget_usd=task.options.max_budget_usd,
        )
    )
