"""Token counts of agents, added up and told apart. A figure that the agent did not tell is None, never 0."""

from __future__ import annotations

from typing import Optional, TypeVar

from ..wire.messages import Usage

N = TypeVar("N", int, float)


def sum_known(*counts: Optional[int]) -> Optional[int]:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def usage_since(session: Optional[Usage], before: Optional[Usage]) -> Usage:
    """Of this turn, where the agent counts over the whole session."""
    if session is None:
        return Usage()
    if before is None:
        return session
    return Usage(
        input_tokens=_less(session.input_tokens, before.input_tokens),
        cached_tokens=_less(session.cached_tokens, before.cached_tokens),
        output_tokens=_less(session.output_tokens, before.output_tokens),
        cost_usd=_less(session.cost_usd, before.cost_usd),
    )


def _less(total: Optional[N], before: Optional[N]) -> Optional[N]:
    """A total below the earlier one has been started afresh, so it is this turn's."""
    if total is None or before is None or total < before:
        return total
    return total - before


def describe_usage(usage: Usage) -> str:
    cost = "" if usage.cost_usd is None else f", {usage.cost_usd:.4f} USD"
    return (
        f"{usage.input_tokens or 0} tokens in ({usage.cached_tokens or 0} cached), {usage.output_tokens or 0} out{cost}"
    )
