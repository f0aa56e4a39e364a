"""What it means when a provider, or the CLI on its behalf, refuses to go on.

Only for texts of the error channel. What an agent wrote about its task or read from a tool never comes here: an agent
that repairs a rate limiter talks of nothing but limits. Families are matched, not sentences, since the wording changes
with every release. Order matters: "Server is temporarily limiting requests (not your usage limit)" is no limit of the
account, and a limit notice may end in advice to /login.
"""

from __future__ import annotations

import re
from typing import Optional, Tuple

from .contract import AUTH, CONTEXT_FULL, FAILED, LIMIT, OVERLOAD

_TEXT_LIMIT = 8 * 1024  # characters; keeps every pattern cheap

_NO_FILE = r"(?!\.[a-z])"  # usage_limit.py is a file that somebody works on
_FAMILIES: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    (OVERLOAD, (r"not your usage limit", r"overloaded", r"at capacity", r"high demand")),
    (
        CONTEXT_FULL,
        (
            r"context (window|length)",
            r"context_length_exceeded",
            r"(prompt|input|request) is too (long|large)",
            r"ran out of room",
            r"too many tokens",
        ),
    ),
    (
        LIMIT,
        (
            r"\b(usage|session|hour|hourly|daily|weekly|monthly|opus|sonnet|plan)[ _-]limits?\b" + _NO_FILE,
            r"\b(rate|requests?|spend|spending)[ _-]limits?\b" + _NO_FILE,
            r"\bhit your\b.{0,60}\blimits?\b",
            r"\blimits? (has been |was |is )?(reached|exceeded|hit)\b",
            r"\b(reached|exceeded|hit) (your|the|its) .{0,60}\blimits?\b",
            r"(?<!disk )\bquota\b" + _NO_FILE,
            r"insufficient_quota|resource_exhausted|(usage_limit|rate_limit)(?![a-z_]*\.[a-z])|billing_error",
            r"\b(free|extra|max) usage\b",
            r"\bout of credits\b",
            r"insufficient (balance|credits?|funds)",
            r"(balance|credits?) (is|are) too low",
            r"too many requests",
        ),
    ),
    (
        AUTH,
        (
            r"\bunauthori[sz]ed\b",
            r"\bnot (logged|signed) in\b",
            r"/login\b",
            r"\b(log|sign)(ged)? ?(in|out)\b.{0,40}\bagain\b",
            r"\bplease (log|sign) in\b",
            r"\blogin (has )?expired\b",
            r"(invalid|incorrect|missing|expired|revoked|no) (x-)?api[ _-]?key",
            r"(invalid|incorrect|missing|expired|revoked) ((access|oauth|bearer) )?(token|credentials?)\b",
            r"(token|key|credentials?) (has |have |was |is )?(been )?(expired|revoked|invalid|not valid)",
            r"refresh[ _]token",
            r"\bno authentication\b|authentication[ _](failed|error|required)|invalid authentication",
            r"permission_error",
            r"missing environment variable",
        ),
    ),
    (
        OVERLOAD,
        (
            r"temporar(y|ily)|try again in a moment",
            r"stream (disconnected|closed|ended)|missing finish_reason|timed? ?out",
            r"connection ?(failed|refused|reset|error)|(unable to|could not) connect|waiting for network|network error",
            r"internal server error|server_error|service unavailable|bad gateway",
        ),
    ),
)
_COMPILED = tuple((kind, re.compile("|".join(patterns))) for kind, patterns in _FAMILIES)
_STATUS = re.compile(r"(?:\bstatus:? |\bapi error:? |\bhttp |\()([45]\d\d)\b")


def judge_refusal(text: str, status: Optional[int] = None) -> str:
    """LIMIT, AUTH, OVERLOAD (also: provider out of reach), CONTEXT_FULL, or FAILED for anything else.

    `status` is the HTTP status where the agent tells it; otherwise one that the text names counts.
    """
    words = text[:_TEXT_LIMIT].lower().replace("\u2019", "'")
    if status is None:
        named = _STATUS.search(words)
        status = int(named.group(1)) if named else None
    if status == 401:
        return AUTH
    for kind, pattern in _COMPILED:
        if pattern.search(words):
            return kind
    return _judge_status(status)


def _judge_status(status: Optional[int]) -> str:
    if status in (402, 429):
        return LIMIT
    if status == 403:
        return AUTH
    if status is not None and (status == 408 or status >= 500):
        return OVERLOAD
    return FAILED
