"""What a limit notice says of itself: which window, when it ends, and whether time alone ends it (X2).

Fields that hold an epoch come before prose. A clock without a zone is the clock of the machine where the agent ran.
What is not understood is None, and so is what cannot be: a time that is over by more than the tolerance, or further
away than the longest window of its kind. No text raises, and each search takes time in proportion to its input.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from typing import Dict, Iterator, List, Match, Optional, Tuple

from ..wire.messages import LimitNotice
from .stream import one_line

RAW_LIMIT_BYTES = 512
TOLERANCE_S = 900.0  # clocks differ, and a notice may have been read late
LONGEST_S = {"five_hour": 5 * 3600.0, "daily": 86400.0, "weekly": 7 * 86400.0, "monthly": 31 * 86400.0}
LONGEST_OF_ALL_S = max(LONGEST_S.values())

_TEXT_LIMIT = 8 * 1024  # characters
_PLAIN = str.maketrans({"\u2019": "'", "\u2212": "-", "\u00a0": " ", "\u202f": " "})
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
_EPOCH = re.compile(
    r"(?:resets?(?:[-_ ]?(?:at|on|time|timestamp))?(?:[-_](?:requests|tokens))?\W{1,4}|\|)(\d{10})(\d{3})?(?!\d)", re.I
)
# A number that is no count of seconds goes on with another unit, a date or a clock.
_SECONDS = re.compile(
    r"(?:resets?_in_seconds\W{1,4}|retry_delay\s{0,3}\{\s{0,3}seconds:\s{0,3}|(?:retry|reset)[-_ ]after\W{1,4}"
    r"|limit-reset(?:-requests|-tokens)?\W{1,4}|retrying in )"
    r"(\d{1,8}(?:\.\d{1,9})?)(?!\d|[:/.-]\d| ?[mhdw]| ?[ap]\.?m)",
    re.I,
)
_AMOUNT = r"\d{1,5}(?:\.\d{1,9})?|(?:half an?|an?|one)(?= )"
_UNIT = (
    r"(?:weeks?|w|days?|d|hours?|hrs?|h|milliseconds?|msecs?|ms|minutes?|mins?|m|seconds?|secs?|s)(?![a-z])"  # 9h53m40s
)
_PARTS = rf"((?:(?:{_AMOUNT}) ?{_UNIT}[, ]{{0,3}}(?:and )?)+)(?!\d)"  # 14h30 may be a clock
_DELAY = re.compile(rf"(?:retry|reset)[-_ ]?(?:delay|after)\W{{1,4}}{_PARTS}", re.I)
_SPAN = re.compile(rf"\b(?:in|after) (?:(?:about|around|approximately|less than) |~ ?)?{_PARTS}", re.I)
_BARE_SPAN = re.compile(rf"\W{{0,3}}{_PARTS}", re.I)
_SPAN_PART = re.compile(rf"({_AMOUNT}) ?({_UNIT})", re.I)
_AMOUNT_WORDS = {"half": 0.5, "a": 1.0, "an": 1.0, "one": 1.0}
_UNIT_S = {"w": 7 * 86400.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_COUNTDOWN = re.compile(r"\bin (\d{1,3}):(\d{2})(?::(\d{2}))?(?!\d)", re.I)
_ANCHOR = re.compile(
    r"\b(?:resets?(?:-(?:requests|tokens))?|try again|available(?: again)?(?= (?:at|in|on|after)\b)|renews?|until|ends"
    r"|retry(?:ing)?|wait)\b",
    re.I,
)
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
_NAMED_DAY = re.compile(
    r"\b(?:(today)|(tomorrow)|(mon|tue(?:s)?|wed(?:nes)?|thu(?:rs?)?|fri|sat(?:ur)?|sun)(?:day)?)\b", re.I
)
_NAMED_DAY_CHARACTERS = 40  # beyond it stands another sentence
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ZONE = re.compile(
    r" ?\(?((?:UTC|GMT) ?[+-]\d{1,2}(?::?\d{2})?)(?!\d)"
    r"| ?\(?((?:pacific|mountain|central|eastern) (?:standard |daylight )?time)\b"
    r"| ?\(([^()\s]{1,64})\)"
    r"| ?((?-i:[A-Z][A-Za-z_]{2,20}/[A-Za-z0-9_/+-]{2,40}|[A-Z]{1,5}(?![A-Za-z]))|(?:UTC|GMT)\b)"
    r"| ?([+-]\d\d(?::?\d\d)?)(?![\w:])",
    re.I,
)
_OFFSET = re.compile(r"(?:UTC|GMT)? ?([+-])(\d{1,2})(?::?(\d{2}))?\Z", re.I)
_ABBREVIATED = {
    **dict.fromkeys(("UTC", "GMT", "Z"), "UTC"),
    **dict.fromkeys(("PT", "PST", "PDT", "PACIFIC"), "America/Los_Angeles"),
    **dict.fromkeys(("MT", "MST", "MDT", "MOUNTAIN"), "America/Denver"),
    **dict.fromkeys(("CT", "CST", "CDT", "CENTRAL"), "America/Chicago"),
    **dict.fromkeys(("ET", "EST", "EDT", "EASTERN"), "America/New_York"),
    **dict.fromkeys(("CET", "CEST"), "Europe/Paris"),
}


def read_limit(text: str, *, now: Optional[float], local: Optional[tzinfo]) -> LimitNotice:
    """`now` and `local` are of the machine where the agent ran; without `now` only an epoch can be understood."""
    words = text[:_TEXT_LIMIT].translate(_PLAIN)
    kinds = _SPAN.sub(" ", words)  # "in 5 hours" names no window
    window = next((name for name, pattern in _WINDOWS if re.search(pattern, kinds, re.I)), None)
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
    seconds, delay = _SECONDS.search(words), _DELAY.search(words)
    if seconds is not None:
        return _checked(now + float(seconds[1]), now, longest_s)
    if delay is not None:
        return _checked(now + _length_s(delay[1]), now, longest_s)
    for anchor in _ANCHOR.finditer(words):
        found = _read_region(words[anchor.end() : anchor.end() + _ANCHORED_CHARACTERS], now, local, longest_s)
        if found is not None:
            return found
    return None


def _read_region(region: str, now: float, local: tzinfo, longest_s: float) -> Optional[float]:
    """What follows a word such as `resets`."""
    countdown = _COUNTDOWN.search(region)
    if countdown is not None:
        hours, minutes, seconds = countdown.groups()
        if seconds is None:
            return None  # hours and minutes, or minutes and seconds
        return _checked(now + int(hours) * 3600 + int(minutes) * 60 + int(seconds), now, longest_s)
    span = _SPAN.search(region) or _BARE_SPAN.match(region)
    if span is not None:
        return _checked(now + _length_s(span[1]), now, longest_s)
    return _read_moment(region, now, local, longest_s)


def _length_s(parts: str) -> float:
    return sum(_amount(amount) * _unit_s(unit.lower()) for amount, unit in _SPAN_PART.findall(parts))


def _amount(word: str) -> float:
    return float(word) if word[0].isdigit() else _AMOUNT_WORDS[word.lower().split()[0]]


def _unit_s(unit: str) -> float:
    return 0.001 if unit.startswith(("ms", "mil")) else _UNIT_S[unit[0]]


def _is_near(found: float, now: float, longest_s: float) -> bool:
    return now - TOLERANCE_S <= found <= now + longest_s + TOLERANCE_S


def _checked(found: float, now: float, longest_s: float) -> Optional[float]:
    return found if _is_near(found, now, longest_s) else None


def _read_moment(region: str, now: float, local: tzinfo, longest_s: float) -> Optional[float]:
    """A day, a clock time or both, in the zone that follows the clock; the first that is not over."""
    day = _read_date(region)
    clock = _read_clock(
        region if day is None else region[: day[0][0]] + " " * (day[0][1] - day[0][0]) + region[day[0][1] :]
    )
    named = _NAMED_DAY.search(region[:_NAMED_DAY_CHARACTERS]) if day is None else None
    if day is None and named is None and clock is None:
        return None
    (hour, minute), zone = ((0, 0), local) if clock is None else (clock[0], _read_zone(region[clock[1] :], local))
    if zone is None:
        return None
    today = datetime.fromtimestamp(now, zone).date()
    moments = [
        datetime(each.year, each.month, each.day, hour, minute, tzinfo=zone).timestamp()
        for each in (_named_days(named, today) if day is None else _days(day[1], today))
    ]
    return min((each for each in moments if _is_near(each, now, longest_s)), default=None)


_Day = Tuple[Optional[int], int, int]  # year where it is given, month, day


def _days(day: _Day, today: date) -> Iterator[date]:
    """What may be meant: without a year last year to next year."""
    year, month, number = day
    for each in (year,) if year is not None else (today.year - 1, today.year, today.year + 1):
        try:
            yield date(each, month, number)
        except ValueError:  # the 29th of February
            continue


def _named_days(named: Optional[Match[str]], today: date) -> List[date]:
    """Of a clock alone yesterday to tomorrow, since it may have passed just before midnight."""
    if named is None:
        return [today + timedelta(days=shift) for shift in (-1, 0, 1)]
    if named[3]:
        number = _WEEKDAYS.index(named[3].lower()[:3])
        week = [today + timedelta(days=shift) for shift in range(-1, 8)]
        return [each for each in week if each.weekday() == number]
    return [today + timedelta(days=1 if named[2] else 0)]


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
    name = next(each for each in found.groups() if each)
    offset = _OFFSET.match(name)
    if offset is not None:
        hours, minutes = int(offset[2]), int(offset[3] or 0)
        if hours > 14 or minutes > 59:
            return None
        delta = timedelta(hours=hours, minutes=minutes)
        return timezone(delta if offset[1] == "+" else -delta)
    name = _ABBREVIATED.get(name.split()[0].upper(), name)
    if name == "UTC":
        return timezone.utc
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # seldom needed

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
