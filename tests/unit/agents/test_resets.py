"""When a limit ends: the forms that are seen, variants of their families, and what nobody can know."""

from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.agents.resets import LONGEST_OF_ALL_S, TOLERANCE_S, read_limit

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 8, 14, 13, 30, tzinfo=BERLIN)  # a Friday in summer time


def read(text: str, now: datetime = NOW, local=BERLIN):
    return read_limit(text, now=now.timestamp(), local=local)


def utc(*parts: int) -> float:
    return datetime(*parts, tzinfo=timezone.utc).timestamp()


SEEN = [
    # text, window, reset in UTC, renews
    ("Claude AI usage limit reached|1786715000", None, 1786715000.0, True),
    ("Claude AI usage limit reached|1786715000123", None, 1786715000.0, True),
    ("Claude Max usage limit reached. Your limit will reset at 12am.", None, utc(2026, 8, 14, 22), True),
    ("Your limit will reset at 12pm.", None, utc(2026, 8, 15, 10), True),
    ("Session limit reached ∙ resets 3pm", "five_hour", utc(2026, 8, 14, 13), True),
    (
        "Session limit reached ∙ resets 10am",
        "five_hour",
        None,
        True,
    ),  # the next one is further than such a window is long
    ("You've hit your limit · resets Aug 15, 8am (Europe/Berlin)", None, utc(2026, 8, 15, 6), True),
    (
        "You've hit your session limit · resets 2:30am (Pacific/Auckland)\n/login to switch to an API account.",
        "five_hour",
        utc(2026, 8, 14, 14, 30),
        True,
    ),
    (
        "You've hit your usage limit. Upgrade your plan to continue, or try again at Aug 20, 2026, 7:38 AM",
        None,
        utc(2026, 8, 20, 5, 38),
        True,
    ),
    (
        "You\u2019ve hit your usage limit for x. Switch now, or try again at 3:05 PM.",
        None,
        utc(2026, 8, 14, 13, 5),
        True,
    ),
    (
        '{"type":"usage_limit_reached","plan_type":"plus","resets_at":1786715000,"resets_in_seconds":13872}',
        None,
        1786715000.0,
        True,
    ),
    ('{"type":"usage_limit_reached","resets_in_seconds":3600}', None, utc(2026, 8, 14, 12, 30), True),
    ("You\u2019ve hit your usage limit … try again at 10 de set. de 2026, 11:52.", None, utc(2026, 9, 10, 9, 52), True),
    ("You exceeded your current quota, please check your plan and billing details.", None, None, False),
    ("Usage Limit Reached, Please Upgrade to Pro", None, None, True),
    ("[API Error: You have exhausted your daily quota on this model.]", "daily", None, True),
    ("429 You exceeded your current quota … retry_delay { seconds: 44 }", None, utc(2026, 8, 14, 11, 30, 44), True),
    ("or try again in 3 days 6 hours 57 minutes.", None, utc(2026, 8, 17, 18, 27), True),
    ("Your workspace is out of credits. Add credits to continue.", None, None, False),
    ("Weekly limit reached · resets Aug 18, 7pm (Europe/Moscow)", "weekly", utc(2026, 8, 18, 16), True),
    ("You\u2019ve hit your limit · resets 11:30pm (Europe/Berlin)", None, utc(2026, 8, 14, 21, 30), True),
    (
        "You've hit your usage limit · you saved $312. Usage will reset when your monthly cycle ends on 9/3/2026.",
        "monthly",
        utc(2026, 9, 2, 22),
        True,
    ),
    ("Free usage exceeded, subscribe to Go [retrying in 15s attempt #1]", None, utc(2026, 8, 14, 11, 30, 15), True),
    ("Insufficient balance", None, None, False),
    ("five_hour limit, resetsAt 1786715000", "five_hour", 1786715000.0, True),
    ("seven_day_opus limit, resetsAt 1787100000", "weekly", 1787100000.0, True),
    ("You're out of extra usage · resets 3pm", None, utc(2026, 8, 14, 13), True),
]


@pytest.mark.parametrize(("text", "window", "resets_at", "renews"), SEEN, ids=[each[0][:40] for each in SEEN])
def test_a_form_that_is_seen(text, window, resets_at, renews):
    found = read(text)
    assert (found.window, found.resets_at, found.renews) == (window, resets_at, renews)
    assert found.raw == " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "at"),
    [
        ("resets 2:30 p.m.", utc(2026, 8, 14, 12, 30)),
        ("resets 2:30PM", utc(2026, 8, 14, 12, 30)),
        ("resets at 14:30", utc(2026, 8, 14, 12, 30)),
        ("resets noon", utc(2026, 8, 15, 10)),
        ("resets at midnight", utc(2026, 8, 14, 22)),
        ("resets 1:25pm", utc(2026, 8, 14, 11, 25)),  # five minutes ago is now, not tomorrow
        ("resets 8pm UTC", utc(2026, 8, 14, 20)),
        ("resets 8pm (UTC)", utc(2026, 8, 14, 20)),
        ("resets 8pm (UTC+2)", utc(2026, 8, 14, 18)),
        ("resets 8pm (GMT-03:30)", utc(2026, 8, 14, 23, 30)),
        ("resets 8pm (Etc/GMT+5)", utc(2026, 8, 15, 1)),  # the sign of Etc is the other way round
        ("resets 8pm (Etc/GMT-5)", utc(2026, 8, 14, 15)),
        ("resets 8pm PDT", utc(2026, 8, 15, 3)),
        ("resets 8pm America/New_York", utc(2026, 8, 15, 0)),
        ("resets on Aug 16 at 9am", utc(2026, 8, 16, 7)),
        ("resets 16 August, 9am", utc(2026, 8, 16, 7)),
        ("resets August 16th", utc(2026, 8, 15, 22)),
        ("resets at 2026-08-16T09:00:00Z", utc(2026, 8, 16, 9)),
        ("resets at 2026-08-16T09:00:00+02:00", utc(2026, 8, 16, 7)),
        ("erneut versuchen: try again at 16. August 2026, 09:00", utc(2026, 8, 16, 7)),
        ("try again in 45 minutes", utc(2026, 8, 14, 12, 15)),
        ("try again in 1h 5m", utc(2026, 8, 14, 12, 35)),
        # Offsets behind the clock, with and without minutes, brackets and blanks.
        ("available again at 8pm UTC-5", utc(2026, 8, 15, 1)),
        ("available again at 8pm UTC-05:00", utc(2026, 8, 15, 1)),
        ("available again at 8pm GMT-5", utc(2026, 8, 15, 1)),
        ("available again at 8pm GMT\u22125", utc(2026, 8, 15, 1)),
        ("resets 8pm (UTC +2)", utc(2026, 8, 14, 18)),
        ("resets 16:05 UTC+2", utc(2026, 8, 14, 14, 5)),
        ("resets 16:05 UTC+0530", utc(2026, 8, 15, 10, 35)),
        ("resets 16:05 +0200", utc(2026, 8, 14, 14, 5)),
        ("resets 16:05 +02", utc(2026, 8, 14, 14, 5)),
        ("resets 16:05+02:00", utc(2026, 8, 14, 14, 5)),
        ("resets 8pm utc", utc(2026, 8, 14, 20)),
        ("resets 8pm Pacific Time", utc(2026, 8, 15, 3)),
        ("resets 8pm (Eastern Daylight Time)", utc(2026, 8, 15, 0)),
        ("resets 8pm CET", utc(2026, 8, 14, 18)),
        # Lengths of time.
        ("Your quota will reset after 9h53m40s", utc(2026, 8, 14, 21, 23, 40)),
        ("Please retry in 34.5s", utc(2026, 8, 14, 11, 30) + 34.5),
        ("try again in 1m30s", utc(2026, 8, 14, 11, 31, 30)),
        ("try again in 2h30m", utc(2026, 8, 14, 14)),
        ("resets in 23h59m", utc(2026, 8, 15, 11, 29)),
        ("resets in 6h 12m", utc(2026, 8, 14, 17, 42)),
        ("resets in 3 days 4 hours", utc(2026, 8, 17, 15, 30)),
        ("try again in an hour", utc(2026, 8, 14, 12, 30)),
        ("try again in about an hour and 20 minutes", utc(2026, 8, 14, 12, 50)),
        ("try again in half an hour", utc(2026, 8, 14, 12)),
        ("try again in 1.5 hours", utc(2026, 8, 14, 13)),
        ("try again in 500ms", utc(2026, 8, 14, 11, 30) + 0.5),
        ("try again in 1 week", utc(2026, 8, 21, 11, 30)),
        ("wait 5 minutes", utc(2026, 8, 14, 11, 35)),
        ("please wait 90 seconds before you go on", utc(2026, 8, 14, 11, 31, 30)),
        ("retry after 5 minutes", utc(2026, 8, 14, 11, 35)),
        ("retry after 8pm", utc(2026, 8, 14, 18)),
        ("[retrying in 2m 5s attempt #1]", utc(2026, 8, 14, 11, 32, 5)),
        ("resets in 4:32:10", utc(2026, 8, 14, 16, 2, 10)),
        ("resets in 4:32", None),  # hours and minutes, or minutes and seconds
        ("resets 14h30", None),  # a clock, or a length of time that is cut
        # Fields.
        ("x-ratelimit-reset: 1786715000", 1786715000.0),
        ('"anthropic-ratelimit-unified-reset": "1786715000"', 1786715000.0),
        ("x-ratelimit-reset: 60", utc(2026, 8, 14, 11, 31)),
        ("x-ratelimit-reset-tokens: 6m0s", utc(2026, 8, 14, 11, 36)),
        ("resets at 1786715000", 1786715000.0),
        ('"retryDelay": "34.5s"', utc(2026, 8, 14, 11, 30) + 34.5),
        ('"quotaResetDelay": "9h53m40s"', utc(2026, 8, 14, 21, 23, 40)),
        ("retry-after: 120", utc(2026, 8, 14, 11, 32)),
        ("Retry-After: Sat, 15 Aug 2026 07:28:00 GMT", utc(2026, 8, 15, 7, 28)),
        # Days by name.
        ("resets tomorrow at 3pm", utc(2026, 8, 15, 13)),
        ("resets 3pm today", utc(2026, 8, 14, 13)),
        ("resets Monday 10am", utc(2026, 8, 17, 8)),
        ("resets 10am on Fri", utc(2026, 8, 21, 8)),
        ("resets Thursday", utc(2026, 8, 19, 22)),
        # What cannot be known is not guessed.
        ("resets 8pm (Nowhere/City)", None),
        ("resets 8pm BRT", None),
        ("resets 25:00", None),
        ("resets 0pm", None),
        ("resets Feb 30, 8am", None),
        ("resets 13/14/2026", None),
        ("resets soon", None),
        ("try again later", None),
        ("resets 8pm UTC+15", None),
        ("resets 10am today", None),
        ("resets Jan 3, 8am", None),  # further than any window
        ("resets in 400 days", None),
        ("|9999999999", None),
        ("resets_in_seconds: 99999999", None),
        ("it cost $312 and took 10 am-pm switches", None),
    ],
)
def test_a_variant(words, at):
    assert read(f"usage limit reached, {words}").resets_at == at


AFTERNOON = datetime(2026, 11, 30, 14, 6, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("5-hour limit reached ∙ resets 10pm", None),
        ("5-hour limit reached ∙ resets 1am", None),
        ("5-hour limit reached ∙ resets 3:45pm (Asia/Kolkata)", None),
        ("5-hour limit reached ∙ resets 7pm", utc(2026, 11, 30, 19)),
        ("5-hour limit reached ∙ resets 2pm", utc(2026, 11, 30, 14)),  # six minutes ago
        ("5-hour limit reached ∙ resets 1:50pm", None),  # sixteen minutes ago
        ("5-hour limit reached ∙ resets at 1796040000", None),  # two hours ago
        ("daily limit reached, resets 1am", utc(2026, 12, 1, 1)),
        ("daily limit reached, resets Nov 30, 1am", None),
        ("daily limit reached, resets 2026-11-29T22:00:00Z", None),
        ("Weekly limit reached · resets Nov 30, 9am", None),
        ("Weekly limit reached · resets Nov 30", None),  # its beginning
        ("Weekly limit reached · resets Nov 30, 2pm", utc(2026, 11, 30, 14)),
        ("Weekly limit reached · resets 9am", utc(2026, 12, 1, 9)),
        ("Weekly limit reached · resets Dec 8, 9am", None),
        ("Weekly limit reached · resets Monday 9am", utc(2026, 12, 7, 9)),
        ("monthly cycle ends on 11/30/2026", None),
        ("monthly cycle ends on 12/1/2026", utc(2026, 12, 1)),
        ("resets_at: 1796000000", None),
    ],
)
def test_a_time_that_is_over_is_no_reset(text, at):
    assert read(text, AFTERNOON, timezone.utc).resets_at == at


def test_a_length_of_time_is_no_window():
    found = read("usage limit reached, try again in 5 hours 30 minutes")
    assert (found.window, found.resets_at) == (None, utc(2026, 8, 14, 17))
    assert read("5 hour limit reached, resets in 2 hours").window == "five_hour"


def test_the_year_rolls_over():
    new_years_eve = datetime(2026, 12, 31, 23, 0, tzinfo=BERLIN)
    assert read("limit reached, resets Jan 2, 8am", new_years_eve).resets_at == utc(2027, 1, 2, 7)
    new_year = datetime(2027, 1, 1, 0, 5, tzinfo=BERLIN)
    assert read("limit reached, resets Dec 31, 11:55pm", new_year).resets_at == utc(2026, 12, 31, 22, 55)


def test_a_clock_without_a_zone_is_that_of_the_machine():
    text = "Session limit reached ∙ resets 3pm"
    assert read(
        text, local=ZoneInfo("America/New_York"), now=datetime(2026, 8, 14, 16, tzinfo=timezone.utc)
    ).resets_at == utc(2026, 8, 14, 19)
    assert read_limit(text, now=None, local=None).resets_at is None


def test_daylight_saving_of_the_day_that_is_meant():
    saturday = datetime(2026, 10, 24, 20, 0, tzinfo=BERLIN)
    assert read("limit reached, resets 8am (Europe/Berlin)", saturday).resets_at == utc(2026, 10, 25, 7)


@given(st.text(max_size=400), st.sampled_from(["", "resets ", "try again at ", "resets_at: ", "in ", "after ", "|"]))
def test_nothing_raises_and_nothing_is_over_or_further_than_the_longest_window(text, start):
    found = read(f"usage limit reached {start}{text}").resets_at
    assert found is None or -TOLERANCE_S <= found - NOW.timestamp() <= LONGEST_OF_ALL_S + TOLERANCE_S


def test_a_huge_text_costs_its_beginning():
    read("resets in " + "1 day " * 2_000_000)
    read("resets in " + "1h" * 2_000_000)
    read("reset after " * 2_000_000)
    read("resets " + "jan " * 2_000_000 + "|" * 1_000_000)
