"""What `result` tells of a turn that is over."""

from __future__ import annotations

import time

import pytest

from shunter.cli.commands.list import state_words
from shunter.cli.commands.result import limit_words, render_result
from shunter.model.records import Task, Turn
from shunter.model.states import Step, TaskState, TurnState
from shunter.service.home import Home
from shunter.service.view import TaskView
from shunter.wire.messages import End, LimitNotice, Usage

TASK = Task("t", "title", "claude", TaskState.OPEN, "p", "r", "w", "a" * 40, "commit", "task/t", 1.0)


@pytest.fixture
def central_europe(monkeypatch):
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        (Usage(input_tokens=3, output_tokens=5), ["  tokens     3 in, 5 out"]),
        (Usage(output_tokens=5), ["  tokens     5 out"]),
        (Usage(input_tokens=0, cost_usd=0.25), ["  tokens     0 in, $0.2500"]),
        (Usage(), []),
    ],
)
def test_only_the_tokens_that_are_known_are_told(usage, told):
    turn = Turn(
        "t-1", "t", 1, TurnState.SUCCEEDED, Step.SETTLED, 1.0, outcome=End("done", "exit status 0", usage=usage)
    )
    shown = render_result(TaskView(TASK, turn, "done", None), Home()).splitlines()
    assert [line for line in shown if "tokens" in line] == told


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (1_500_000_000.0, "was to reset 2017-07-14 04:40:00 CEST"),
        (1_484_000_000.0, "was to reset 2017-01-09 23:13:20 CET"),
        (4_100_000_000.0, "resets 2099-12-03 17:53:20 CET"),
    ],
)
def test_the_end_of_a_limit_has_its_day_and_its_zone(central_europe, at, told):
    assert limit_words(LimitNotice("limit reached", window="five_hour", resets_at=at)) == f"five-hour, {told}"


def test_output_that_was_not_kept_is_told():
    end = End("unknown", "exit status 0", stdout_lost_bytes=4711, stderr_lost_bytes=12)
    turn = Turn("t-1", "t", 1, TurnState.SUCCEEDED, Step.SETTLED, 1.0, outcome=end)
    shown = render_result(TaskView(TASK, turn, "unknown", None), Home())
    assert "4711 bytes of its output are not kept" in shown
    assert "12 bytes of its standard error are not kept" in shown


@pytest.mark.parametrize(("at", "word"), [(1_500_000_000.0, "was until"), (4_100_000_000.0, "until")])
def test_a_list_tells_a_limit_that_is_over_as_such(at, word):
    end = End("limit", "limit reached", limit=LimitNotice("limit reached", resets_at=at))
    turn = Turn("t-1", "t", 1, TurnState.FAILED, Step.SETTLED, 1.0, outcome=end)
    assert state_words(TaskView(TASK, turn, "limit", None)).startswith(f"limit {word} 2")
