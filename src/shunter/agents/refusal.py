"""What it means when a provider, or the CLI on its behalf, refuses to go on.

Only for texts of the error channel. What an agent wrote about its task or read from a tool never comes here: an agent
that repairs a rate limiter talks of nothing but limits. Some agents put errors of the work into that channel too, so a
text that names source files or tests counts only by words that nobody but a provider has, and one that tells what a
check expected counts for nothing. Families are matched, not sentences, since the wording changes with every release.
Order matters: "Server is temporarily limiting requests (not your usage limit)" is no limit of the account, and a limit
notice may end in advice to /login.
"""

from __future__ import annotations

import re
from typing import Optional, Pattern, Tuple

from .contract import AUTH, CONTEXT_FULL, FAILED, LIMIT, OVERLOAD

_TEXT_LIMIT = 8 * 1024  # characters; keeps every pattern cheap

_NO_FILE = r"(?!\.[a-z])"  # usage_limit.conf is a file that somebody works on
_ALLOWANCE = (
    r"(?:\b(?:usage|session|hour(?:ly)?|daily|weekly|monthly|opus|sonnet|plan|rate|requests?|spend(?:ing)?)[ _-]limits?"
    r"|(?<!disk )(?<!storage )\bquota|\b(?:free|extra) usage)\b" + _NO_FILE
)
_SPENT_BEFORE = r"\b(?:hit|reach(?:ed)?|exceed(?:s|ed)?|exhausted|used up|out of|run out|limited by)\b"
_SPENT_AFTER = (
    r"\b(?:hit|reached|exceed(?:s|ed)?|exhausted|used up|resets?|try again|retry(?:ing)?|wait|upgrade|until|increase)\b"
)
_FAMILIES: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    (
        OVERLOAD,
        (
            r"not your usage limit",
            r"(?<!of )overloaded(?! (function|method|operator|constructor|member|template|'|`))",  # C++
            r"at capacity",
            r"high demand",
        ),
    ),
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
            _ALLOWANCE + r".{0,120}" + _SPENT_AFTER,
            _SPENT_BEFORE + r".{0,80}" + _ALLOWANCE,
            r"^\W*(429\W+)?" + _ALLOWANCE + r"\W*$",
            r"\bhit your\b.{0,60}\blimits?\b",
            r"\blimits? (has been |was |is )?(reached|exceeded|hit)\b",
            r"\b(reached|exceeded|hit) (your|the|its) .{0,60}\blimits?\b",
            r"\b(usage|rate)_limits?_(reached|exceeded|error)\b|\"(usage|rate)_limits?\"",
            r"\brate_limit_info\W{1,6}status\W{1,5}rejected\b",
            r"(^\W*|\b(are|been|being|got|is|was) )rate[ -]?limited\b",
            r"insufficient_quota|resource_exhausted|billing_error",
            r"\bout of credits\b",
            r"insufficient (balance|credits?|funds)",
            r"(balance|credits?) (is|are) too low",
            r"too many requests",
        ),
    ),
    (
        AUTH,
        (
            r"(^|[:\u00b7(\[{\"] ?|\b(401|error|failed|request)\W{1,3})unauthori[sz]ed\b",
            r"\bunauthori[sz]ed\W{1,3}401\b",
            r"\bnot (logged|signed) in\b",
            r"\b(run|use|try|type|with) [`'\"]?/login\b",
            r"\b(log|sign)(ged)? ?(in|out)\b.{0,40}\bagain\b",
            r"\bplease (log|sign) in\b",
            r"\blogin (has )?expired\b",
            r"(invalid|incorrect|missing|expired|revoked|no) (x-)?api[ _-]?key",
            r"(invalid|incorrect|missing|expired|revoked) ((access|oauth|bearer|auth) token|credentials?)\b",
            r"(incorrect|missing|expired|revoked) token\b",
            r"\binvalid token\b(?! (at|in|near|on|after|before)\b)(?!\W{0,3}['\"`<{}\d])",  # which parsers say as well
            r"(token|key|credentials?) (has |have |was |is )?(been )?(expired|revoked|invalid|not valid)",
            r"refresh[ _]token.{0,60}\b(used|reused|invalid(ated)?|expired|revoked|fail(ed|s)?|not)\b",
            r"\b(invalid|expired|revoked|failed to|could not|cannot)\b.{0,40}refresh[ _]token",
            r"refresh_token_(invalidated|expired|reused|revoked)",
            r"\bno authentication\b|invalid authentication",
            r"authentication[ _](failed|error|required)(?! for ['\"`]?(address|git|ssh))",  # which git says
            r"permission_error",
            r"missing environment variable: `",
        ),
    ),
    (
        OVERLOAD,
        (
            r"\btemporarily\b|usually temporary|temporary (error|issue|fail|outage|problem|unavail)",
            r"try again in a moment",
            r"stream (disconnected|closed|ended)|missing finish_reason",
            r"(?<!command )(?<!tests )(?<!test )(?<!build )(?<!script )(?<!process )\btimed? ?out",
            r"connection ?(failed|refused|reset|error)|(unable to|could not) connect|waiting for network|network error",
            r"internal server error|server_error|service unavailable|bad gateway",
        ),
    ),
)
# What only a provider says, also where the text is about the work.
_UNMISTAKABLE: Tuple[Tuple[str, Tuple[str, ...]], ...] = (
    (OVERLOAD, (r"not your usage limit", r"\"overloaded_error\"")),
    (CONTEXT_FULL, (r"\"context_length_exceeded\"",)),
    (
        LIMIT,
        (
            r"\byou('ve| have)? (hit|reached|exceeded|exhausted) your\b.{0,60}\b(limits?|quota)\b",
            r"\byour limit will reset\b|\blimit reached\W{1,4}(\d{10}|resets)\b",
            r"\"(usage_limit_reached|rate_limit_error|insufficient_quota|resource_exhausted)\"",
        ),
    ),
    (AUTH, (r"\bplease run /login\b", r"\"(authentication_error|invalid_api_key)\"", r"\byour refresh token\b")),
)
# Limits of a program, a tool or a machine, which no account has.
_OTHER_LIMITS = re.compile(
    r"\bulimit\b|(?<!context )\b(tool[ _-]?calls?|tools?|(open[ _-])?files?|edits?|steps?|turns?|iterations?"
    r"|recursion|depth|nesting|stack|heap|memory|cpu|time|timeout|size|length|lines?|words?|characters?|columns?"
    r"|retry|retries|process(es)?|threads?|descriptors?|disk|storage|arguments?|output|upload|payload"
    r"|page|rows?|watch(es|ers?)?)"
    r"[ _-]((size|count|length)[ _-])?limits?\b"
)
# Of a server, or of a file of the agent's own program.
_ADDRESS = re.compile(
    r"(?:https?|file|node)://[^\s\"'`<>)\]},]{1,2048}|/[^\s\"']{0,200}/node_modules/[^\s\"')]{1,2048}"
)
_WORK = re.compile(
    r"[\w)-]\.(?:py|pyi|rs|go|js|mjs|jsx|ts|tsx|java|kt|rb|php|swift|c|cc|cpp|h|hpp|cs|scala|sh|sql|html|css|vue)"
    # A word of itself may be the name of an organization or of a model.
    r"(?![\w.])|\b(?:the|a|this|in|unit|integration|failing|my|some|all) tests?(?![\w-])"
    r"|(?<![\w-])tests? (?:fail|did|do|case|suite|run|pass|file|that|for|which|still|is|are|was|were|expect)"
    r"|\b(?:py|unit)tests?\b|\btest_\w|\btraceback\b"
)
_EXPECTED = re.compile(
    r"\bassert(?:ion|ions|ed|s|ionerror)?\b|\bexpect\(|\bexpected\b.{0,120}\b(?:got|received|actual)\b"
    r"|\b(?:got|received)\b.{0,120}\bexpected\b|\b(?:instead of|should (?:be|return|give)) (?:an? )?[1-5]\d\d\b"
)


def _compile(families: Tuple[Tuple[str, Tuple[str, ...]], ...]) -> Tuple[Tuple[str, Pattern[str]], ...]:
    return tuple((kind, re.compile("|".join(patterns))) for kind, patterns in families)


_ANYWHERE, _IN_WORK = _compile(_FAMILIES), _compile(_UNMISTAKABLE)
_STATUS = re.compile(r"(?:\bstatus:? |\bapi error:? |\bhttp |\()([45]\d\d)\b")


def judge_refusal(text: str, status: Optional[int] = None) -> str:
    """LIMIT, AUTH, OVERLOAD (also: provider out of reach), CONTEXT_FULL, or FAILED for anything else.

    `status` is the HTTP status where the agent tells it; otherwise one that the text names counts.
    """
    words = " ".join(_ADDRESS.sub("address", text[:_TEXT_LIMIT].lower().replace("\u2019", "'")).split())
    words = _OTHER_LIMITS.sub(" ", words)
    families = () if _EXPECTED.search(words) else _IN_WORK if _WORK.search(words) else _ANYWHERE
    if status is None and families is _ANYWHERE:
        named = _STATUS.search(words)
        status = int(named.group(1)) if named else None
    if status == 401:
        return AUTH
    for kind, pattern in families:
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
