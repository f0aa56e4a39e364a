"""What a host is handed for one attempt: the job and its prompt, from the task and its brief; no I/O."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from ..agents import contract
from ..agents.table import load
from ..model.brief import Brief
from ..model.records import Task, Turn
from ..policy.retry import did_nothing
from ..wire.ids import new_nonce
from ..wire.messages import JobSpec, PushTarget

GO_ON = (
    "Your last turn was cut off, because the service that runs you was overloaded or could not be reached. The"
    " workspace is as you left it, and the task has not changed. Look at what is done already, go on from there and"
    " finish it."
)


def prompt_of(brief: Brief, repeated: Sequence[Turn] = ()) -> str:
    """`repeated`: for a repeat, the turns that the same message had before. Where one of them did something, its
    session knows the message, and is asked to go on; otherwise the message is sent once more."""
    is_under_way = any(turn.outcome is None or not did_nothing(turn.outcome) for turn in repeated)
    return load(brief.adapter).prepare_prompt(GO_ON if is_under_way else brief.prompt)


def launch_of(task: Task, brief: Brief, *, session_id: str | None, permission: str) -> contract.Launch:
    """Raises AGENT_UNKNOWN or AGENT_OPTION."""
    return load(brief.adapter).launch(
        contract.Turn(
            command=brief.command,
            model=task.model,
            effort=task.effort,
            session_id=session_id,
            new_session_id=brief.new_session_id,
            permission=permission,
            wish=brief.permission,
            max_turns=task.options.max_turns,
            max_budget_usd=task.options.max_budget_usd,
            env=brief.env,
            resume=brief.resume,
            fields=brief.fields,
        )
    )


def job_spec(task: Task, turn: Turn, brief: Brief, *, permission: str) -> JobSpec:
    """All that the host needs, from the task and its brief. Raises AGENT_UNKNOWN or AGENT_OPTION."""
    session_id = task.session_id if turn.number > 1 else None
    if turn.repeat_number and turn.fresh_session:
        brief = replace(brief, new_session_id=str(uuid.uuid4()))  # an agent may refuse the id that it was given before
    launch = launch_of(task, brief, session_id=session_id, permission=permission)
    return JobSpec(
        attempt_id=turn.attempt_id or "",
        job_id=turn.id,
        task_id=task.id,
        project_id=task.project_id,
        nonce=new_nonce(),  # of a repeated acceptance the host keeps the first
        number=turn.number,
        title=task.title,
        base_oid=task.base_oid,
        agent=brief.adapter,
        argv=launch.argv,
        env=launch.env,
        files=launch.files,
        wants_schema=launch.wants_schema,
        session_marker=launch.session.marker if launch.session else None,
        session_key=launch.session.key if launch.session else None,
        session_id=launch.session_id,
        permission=launch.permission,
        identity_name=brief.identity_name,
        identity_email=brief.identity_email,
        timeout_s=task.options.timeout_s or 0.0,
        limits=brief.limits,
        env_profile=task.options.env_profile,
        push=push_target(task),
        fields=brief.fields,
        result_oid=task.fetched_oid if turn.number > 1 else None,
    )


def push_target(task: Task) -> PushTarget | None:
    """Where the result goes besides home."""
    url, branch = task.options.push_url, task.options.push_branch
    return PushTarget(url, branch) if url is not None and branch is not None else None
