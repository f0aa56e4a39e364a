"""What a turn is to do, resolved at submit: prompt, agent's command, limits. A private file, never a row (P9)."""

from __future__ import annotations

from typing import Dict, Tuple  # noqa: UP035

from ..wire.messages import Limits
from ..wire.record import dataclass, field


@dataclass(frozen=True)
class Brief:
    """`command`, `env`, `resume` and `fields` are the configured agent's; place-holders: see `agents.contract`."""

    prompt: str
    adapter: str
    command: Tuple[str, ...]  # noqa: UP006
    identity_name: str
    identity_email: str
    limits: Limits
    new_session_id: str  # for agents that let us choose
    env: Dict[str, str] = field(default_factory=dict)  # noqa: UP006
    resume: Tuple[str, ...] = ()  # noqa: UP006
    fields: Dict[str, str] = field(default_factory=dict)  # noqa: UP006
    permission: str = ""  # what was asked for; the task says what is in force
