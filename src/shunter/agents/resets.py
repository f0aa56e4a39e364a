"""What a limit notice says of itself: which window, when it ends, and whether time alone ends it (X2).

Fields that hold an epoch come before prose. A clock without a zone is the clock of the machine where the agent ran.
What is not understood is None, and so is what cannot be: a time further away than the longest window of its kind. No
text raises, and each search takes time in proportion to its input.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Dict, Iterator, Optional, Tuple

from ..wire.messages import LimitNotice
from .contract import LIMIT, Ended
from .stream import one_line

RAW_LIMIT_BYTES = 512
TOLERANCE_S = 900.0  # clocks differ, and a notice may have been read late
LONGEST_S = {"five_hour": 5 * 3600.0, "daily": 86400.0, "weekly": 7 * 86400.0, "monthly": 31 * 86400.0}
LONGEST_OF_ALL_S = max(LONGEST_S.values())

_TEXT_LIMIT = 8 * 1024  # characters
_WINDOWS = (
    ("weekly", r"seven[_ -]day|\bweek(ly)?\b|\b7[ -]day"),
    ("five_hour", r"five[_ -]hour|\b5[ -]?h(ou)?rs?\b|\bsession limit"),
    ("monthly", r"\bmonth(ly)?\b"),
    ("daily", r"\bdaily\b|\bper day\b"),
)
_LASTING = (
    r"insufficient[_ ](quota|balance|credits?|funds)|out of (extra )?(usage )?credits|credit balance"
    r"|(balance|credits?) (is|are) too low|billing_error|add credits|check your plan and billing"
)
_EPOCH = re.compile(r"(?:resets?_?at\W{1,4}|\|)(\d{10})(\d{3})?(?!\d)", re.I)
_SECONDS = re.compile(
    r"(?:resets?_in_seconds\W{1,4}|retry_delay\s{0,3}\{\s{0,3}seconds:\s{0,3}|retry[-_ ]after\W{1,4}|retrying in )"
    r"(\d{1,8})(?!\d)",
    re.I,
)
_SPAN = re.compile(
    r"\bin ((?:\d{1,4} ?(?:days?|d|hours?|hrs?|h|minutes?|mins?|m|seconds?|secs?|s)\b[, ]*(?:and )?)+)", re.I
)
_SPAN_PART = re.compile(r"(\d{1,4}) ?([dhms])", re.I)
_SPAN_S = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_ANCHOR = re.compile(r"\b(?:resets?|try again|available again|renews?|until|ends|retry)\b", re.I)
_ANCHORED_CHARACTERS = 160

_MONTHS: Dict[str, int] = {
    name: number
    for number, names in enumerate(
        (
            # English, German, Spanish, Portuguese, French; compared by how the word begins
            "jan ene janv",
            "feb fev fév",
            "mar mär mrz",
            "apr abr avr",
            "may mai",
            "jun juin",
            "jul juil",
            "aug ago aoû aou",
            "sep set",
            "oct okt out",
            "nov",
            "dec dez dic déc",
        ),
        1,
    )
    for name in names.split()
}
_WORD = r"([^\W\d_]{3,12})\.?"
_MONTH_FIRST = re.compile(_WORD + r" (\d{1,2})(?:st|nd|rd|th)?\b(?:,? (\d{4})\b)?", re.I)
_DAY_FIRST = re.compile(r"\b(\d{1,2})\.? (?:de )?" + _WORD + r"(?:,? (?:de )?(\d{4})\b)?", re.I)
_SLASHES = re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b")
_ISO_DATE = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})(?=\b|T)")
_TWELVE = re.compile(r"(?<![\d:])(\d{1,2})(?::(\d{2}))?(?::\d{2})? ?([ap])\.?m\b\.?", re.I)
_TWENTY_FOUR = re.compile(r"(?:(?<![\d:])|(?<=T))(\d{1,2}):(\d{2})(?::\d{2}(?:\.\d{1,9})?)?(?!\d)")
_NAMED = re.compile(r"\b(noon|midnight)\b", re.I)
_ZONE = re.compile(
    r" ?\(([^()\s]{1,64})\)| ?([A-Z][A-Za-z_]{2,20}/[A-Za-z0-9_/+-]{2,40}|[A-Z]{1,5}(?![A-Za-z]))| ?([+-]\d\d:?\d\d)"
)
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?\Z", re.I)
_ABBREVIATED = {
    **dict.fromkeys(("UTC", "GMT", "Z"), "UTC"),
    **dict.fromkeys(("PT", "PST", "PDT"), "America/Los_Angeles"),
    **dict.fromkeys(("MT", "MST", "MDT"), "America/Denver"),
    **dict.fromkeys(("CT", "CST", "CDT"), "America/Chicago"),
    **dict.fromkeys(("ET", "EST", "EDT"), "America/New_York"),
    **dict.fromkeys(("CET", "CEST"), "Europe/Paris"),
}


def limit_of(kind: str, evidence: str, ended: Ended) -> Optional[LimitNotice]:
    """Of an outcome; None unless it is a limit."""
    return read_limit(evidence, now=ended.at, local=ended.zone) if kind == LIMIT else None


def read_limit(text: str, *, now: Optional[float], local: Optional[tzinfo]) -> LimitNotice:
    """`now` and `local` are of the machine where the agent ran; without `now` only an epoch can be understood."""
    words = text[:_TEXT_LIMIT].replace("\u2019", "'").replace("\u00a0", " ").replace("\u202f", " ")
    window = next((name for name, pattern in _WINDOWS if re.search(pattern, words, re.I)), None)
    resets_at = None
    try:
        resets_at = _find_reset(words, window, now, local or timezone.utc)
    except (ValueError, OverflowError):
        pass  # a date that no calendar has
    renews = resets_at is not None or not re.search(_LASTING, words, re.I)
    return LimitNotice(raw=one_line(text, RAW_LIMIT_BYTES), window=window, resets_at=resets_at, renews=renews)


def _find_reset(words: str, window: Optional[str], now: Optional[float], local: tzinfo) -> Optional[float]:
    longest_s = LONGEST_S.get(window or "", LONGEST_OF_ALL_S)
    epoch = _EPOCH.search(words)
    if epoch is not None:
        at = float(epoch[1])
        return at if now is None else _checked(at, now, longest_s)
    if now is None:
        return None
    seconds = _SECONDS.search(words)
    if seconds is not None:
        return _checked(now + int(seconds[1]), now, longest_s)
    for anchor in _ANCHOR.finditer(words):
        region = words[anchor.end() : anchor.end() + _ANCHORED_CHARACTERS]
        span = _SPAN.search(region)
        if span is not None:
            parts = _SPAN_PART.findall(span[1])
            return _checked(now + sum(int(count) * _SPAN_S[unit.lower()] for count, unit in parts), now, longest_s)
        found = _read_moment(region, now, local, longest_s)
        if found is not None:
            return found
    return None


def _is_near(found: float, now: float, longest_s: float) -> bool:
    return now - 86400.0 <= found <= now + longest_s + TOLERANCE_S


def _checked(found: float, now: float, longest_s: float) -> Optional[float]:
    return found if _is_near(found, now, longest_s) else None


def _read_moment(region: str, now: float, local: tzinfo, longest_s: float) -> Optional[float]:
    """A date, a clock time or both, in the zone that follows the clock."""
    day = _read_date(region)
    clock = _read_clock(
        region if day is None else region[: day[0][0]] + " " * (day[0][1] - day[0][0]) + region[day[0][1] :]
    )
    if day is None and clock is None:
        return None
    (hour, minute), zone = ((0, 0), local) if clock is None else (clock[0], _read_zone(region[clock[1] :], local))
    if zone is None:
        return None
    moments = [
        datetime(each.year, each.month, each.day, hour, minute, tzinfo=zone).timestamp()
        for each in _days(day[1] if day else None, datetime.fromtimestamp(now, zone).date())
    ]
    near = [each for each in moments if _is_near(each, now, longest_s)]
    coming = [each for each in near if each >= now - TOLERANCE_S]
    return min(coming) if coming else max(near, default=None)


_Day = Tuple[Optional[int], int, int]  # year where it is given, month, day


def _days(day: Optional[_Day], today: date) -> Iterator[date]:
    """What may be meant: without a date yesterday to tomorrow, without a year last year to next year."""
    if day is None:
        yield from (today + timedelta(days=shift) for shift in (-1, 0, 1))
        return
    year, month, number = day
    for each in (year,) if year is not None else (today.year - 1, today.year, today.year + 1):
        try:
            yield date(each, month, number)
        except ValueError:  # the 29th of February
            continue


def _read_date(region: str) -> Optional[Tuple[Tuple[int, int], _Day]]:
    """Where it stands, and the date."""
    found = _ISO_DATE.search(region)
    if found is not None:
        return found.span(), (int(found[1]), int(found[2]), int(found[3]))
    found = _SLASHES.search(region)  # month first, as the agents that print it have it
    if found is not None:
        return found.span(), (int(found[3]), int(found[1]), int(found[2]))
    for pattern, month_group, day_group in ((_MONTH_FIRST, 1, 2), (_DAY_FIRST, 2, 1)):
        for found in pattern.finditer(region):
            month = _month(found[month_group])
            if month is not None:
                return found.span(), (int(found[3]) if found[3] else None, month, int(found[day_group]))
    return None


def _month(word: str) -> Optional[int]:
    return _MONTHS.get(word.lower()[:4]) or _MONTHS.get(word.lower()[:3])


def _read_clock(region: str) -> Optional[Tuple[Tuple[int, int], int]]:
    """Hour and minute, and where the text goes on."""
    found = _TWELVE.search(region)
    if found is not None:
        hour, minute = int(found[1]), int(found[2] or 0)
        if not 1 <= hour <= 12 or minute > 59:
            return None
        return (hour % 12 + (12 if found[3].lower() == "p" else 0), minute), found.end()
    found = _TWENTY_FOUR.search(region)
    if found is not None:
        hour, minute = int(found[1]), int(found[2])
        return ((hour, minute), found.end()) if hour < 24 and minute < 60 else None
    found = _NAMED.search(region)
    if found is not None:
        return (12 if found[1].lower() == "noon" else 0, 0), found.end()
    return None


def _read_zone(rest: str, local: tzinfo) -> Optional[tzinfo]:
    """The zone right after the clock; `local` when there is none, None when it is not known here."""
    found = _ZONE.match(rest)
    if found is None:
        return local
    name = found[1] or found[2] or found[3]
    offset = _OFFSET.match(name)
    if offset is not None:
        delta = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
        return timezone(delta if offset[1] == "+" else -delta)
    if _ABBREVIATED.get(name) == "UTC":
        return timezone.utc
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # seldom needed

    try:
        return ZoneInfo(_ABBREVIATED.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
