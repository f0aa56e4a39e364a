"""Text for terminals, and times that a person writes."""

from __future__ import annotations

import datetime
import time

import click
import pytest

from shunter.cli.durations import AGO
from shunter.cli.text import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31m", "a\\x1b[31m"),
        ("\u202eb", "\\u202eb"),
        ("\U000e0041b", "\\U000e0041b"),  # not the same as U+E004 before "1b"
        ("\udcff", "\\xff"),
        ("grüße\t", "grüße\t"),
    ],
)
def test_each_character_that_could_do_something_is_told_apart(text, shown):
    assert visible(text) == shown


class TestAgo:
    @pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("7", 7), ("2h", 7200)])
    def test_a_duration(self, text, seconds):
        assert AGO.convert(text, None, None) == seconds

    @pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%H:%M:%S"])
    def test_a_local_time(self, form):
        at = time.time() - 3600
        ago = AGO.convert(time.strftime(form, time.localtime(at)), None, None)
        assert 3599 < ago < 3660

    def test_a_time_with_a_zone(self):
        at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=30)
        text = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        assert 30 * 3600 - 1 < AGO.convert(text, None, None) < 30 * 3600 + 60

    def test_a_time_of_day_that_has_not_come_was_yesterday(self):
        text = time.strftime("%H:%M:%S", time.localtime(time.time() + 1800))
        assert 23 * 3600 < AGO.convert(text, None, None) < 24 * 3600

    def test_a_time_to_come_leaves_out_all_so_far(self):
        text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + 90000))
        assert AGO.convert(text, None, None) == 0

    @pytest.mark.parametrize("text", ["yesterday", "25:00", "2026-13-01", "", "-5m", "1:2", "14:05h"])
    def test_anything_else_is_refused_with_the_forms(self, text):
        with pytest.raises(click.BadParameter, match="a duration, such as"):
            AGO.convert(text, None, None)
