"""Records survive the codec, and are strict."""

from __future__ import annotations

import dataclasses

import pytest

from shunter.model import records
from shunter.model.states import AttemptState, Step, TaskState, TurnState
from shunter.wire.codec import dumps, loads
from shunter.wire.errors import ShunterError
from shunter.wire.messages import End, Publication, Question

OUTCOME = End(
    "needs_input",
    "structured result",
    questions=(Question("which?", ("a", "b")),),
    publication=Publication("a" * 40, 1),
)
TASK = records.Task(
    id="7k2m9x4q1c",
    title="t",
    agent="exec",
    state=TaskState.QUEUED,
    project_id="p",
    repo_id="r",
    worktree_id="w",
    base_oid="0" * 40,
    base_kind="commit",
    branch="task/7k2m9x4q1c",
    created_at=1.5,
    options=records.Options(timeout_s=90, max_turns=3),
)
EXAMPLES = [
    records.Project("p", "r", "w", "/w\udcff", "/w/.git"),
    TASK,
    records.Turn("7k2m9x4q1c-1", "7k2m9x4q1c", 1, TurnState.QUEUED, Step.WAITING, 1.0, outcome=OUTCOME),
    records.Attempt("x", "7k2m9x4q1c-1", 1, "local", AttemptState.OPEN, 1.0),
    records.Row("7k2m9x4q1c-1", "7k2m9x4q1c", "s", records.Requirements(agent="exec", capabilities=("agent:exec",))),
    records.Event(at=1.0, kind="turn", actor="me"),
    records.Leader(records.Owner("o", "h", "b", 7), 3, 1.0, 15.0),
]


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_went(record):
    assert loads(type(record), dumps(record)) == record


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_an_unknown_field_is_refused(record):
    with pytest.raises(ShunterError, match="unknown field"):
        loads(type(record), dumps(record)[:-1] + ',"extra":1}')


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_cannot_be_changed(record):
    with pytest.raises(AttributeError):
        setattr(record, dataclasses.fields(record)[0].name, "other")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("fix\n\tthe  bug", "fix the bug"),
        ("\x1b[31mred\x1b[0m", "[31mred [0m"),
        ("right\u202eto left", "right to left"),
        ("half \ud800 a pair", "half a pair"),
        ("", ""),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_a_summary_is_one_short_printable_line(text, line):
    assert records.sanitised_summary(text) == line
