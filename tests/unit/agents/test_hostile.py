"""Whatever an agent prints, it is judged: nothing raises, texts stay within their limits, time grows with the input.

Nothing here is timed; a judge whose time grew faster than its input would not get through the large ones at all.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shunter.agents.table import MODULES, load
from shunter.wire.codec import dumps
from shunter.wire.messages import Usage

from .recorded import all_recorded, an_end, recorded

AGENTS = tuple(MODULES)
KINDS = {
    *("done", "needs_input", "blocked", "unknown", "no_changes", "failed", "limit", "auth", "overload"),
    *("context_full", "usage_error", "crashed", "lost", "launch_failed"),
}
RECORDINGS = [(agent, case) for agent, case in all_recorded() if case != "rate"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def judge(agent: str, lines: list[bytes], **facts: Any) -> None:
    """Every promise that does not depend on what the lines say."""
    adapter = load(agent)
    outcome = adapter.find_outcome(an_end(*lines, **facts))
    assert outcome.kind in KINDS
    assert 0 < len(outcome.evidence.encode()) <= 1024
    assert "\n" not in outcome.evidence
    assert len(outcome.summary.encode()) <= 8192
    assert outcome.session_id is None or len(outcome.session_id.encode()) <= 128
    json.loads(dumps(outcome))
    for line in lines:
        events = adapter.read_event(line)
        assert len(events) <= 64
        for event in events:
            assert len(event.text.encode()) <= 4096
            assert event.path is None or len(event.path.encode()) <= 4096


def replaced(value: Any, path: list[int], new: Any) -> Any:
    """The JSON value with one inner value, reached by choosing a child at each step, replaced."""
    if not path or not isinstance(value, (dict, list)) or not value:
        return new
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[path[0] % len(keys)]
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = replaced(value[key], path[1:], new)
    return copy


@settings(max_examples=100, deadline=None)
@given(agent=st.sampled_from(AGENTS), lines=st.lists(st.binary(max_size=200), max_size=8), facts=st.data())
def test_arbitrary_bytes(agent: str, lines: list[bytes], facts: st.DataObject) -> None:
    judge(
        agent,
        lines,
        exit_code=facts.draw(st.none() | st.integers(0, 255)),
        signal=facts.draw(st.none() | st.integers(1, 64)),
        stderr_tail=facts.draw(st.binary(max_size=200)),
        last_message=facts.draw(st.none() | st.text(max_size=200)),
        commits=facts.draw(st.integers(0, 2)),
        previous_usage=facts.draw(st.none() | st.builds(Usage, input_tokens=st.none() | st.integers(0, 10**9))),
    )


@settings(max_examples=200, deadline=None)
@given(
    which=st.sampled_from(RECORDINGS),
    line=st.integers(0, 99),
    path=st.lists(st.integers(0, 30), min_size=1, max_size=5),
    new=json_values,
    status=st.sampled_from([0, 1, 2, 143, None]),
)
def test_one_value_of_a_recorded_stream_replaced(
    which: tuple[str, str], line: int, path: list[int], new: Any, status: int | None
) -> None:
    lines = recorded(*which)
    line %= len(lines)
    lines[line] = json.dumps(replaced(json.loads(lines[line]), path, new)).encode()
    judge(which[0], lines, exit_code=status)


@settings(max_examples=100, deadline=None)
@given(
    which=st.sampled_from(RECORDINGS), at=st.integers(0, 10**6), what=st.binary(max_size=40), gap=st.integers(0, 200)
)
def test_a_recorded_stream_with_a_piece_torn_out(which: tuple[str, str], at: int, what: bytes, gap: int) -> None:
    whole = b"\n".join(recorded(*which))
    at %= len(whole)
    judge(which[0], (whole[:at] + what + whole[at + gap :]).split(b"\n"))


@pytest.mark.parametrize(("agent", "case"), RECORDINGS)
def test_a_recorded_stream_broken_off_doubled_or_mixed_with_another(agent: str, case: str) -> None:
    lines = recorded(agent, case)
    for cut in range(len(lines) + 1):
        judge(agent, lines[:cut])
    judge(agent, [line for line in lines for _ in range(2)])
    judge(agent, lines + lines)
    judge(agent, lines[::-1], exit_code=1)
    other = recorded(*RECORDINGS[(RECORDINGS.index((agent, case)) + 1) % len(RECORDINGS)])
    judge(agent, [line for pair in zip(lines, other) for line in pair])
    judge(agent, [line[: len(line) // 2] for line in lines])


DEEP = 200_000
HOSTILE = {
    "nested lists": b"[" * DEEP,
    "nested objects": b'{"type":' * DEEP,
    "a deep value in an event": b'{"type":"result","is_error":false,"structured_output":'
    + b"[" * DEEP
    + b"]" * DEEP
    + b"}",
    "not a number": b'{"type":"result","is_error":NaN,"total_cost_usd":Infinity,"usage":{"input_tokens":-Infinity}}',
    "figures out of range": b'{"type":"turn.completed","usage":{"input_tokens":1e999,"output_tokens":-5}}',
    "a long integer": b'{"type":"turn.completed","usage":{"input_tokens":' + b"9" * 3_000_000 + b"}}",
    "binary": bytes(range(256)) * 100,
    "UTF-16": '{"type":"result"}'.encode("utf-16"),
    "zero bytes": b"\0" * 10_000,
    "a lone surrogate": b'{"type":"error","message":"\\udfff limit"}',
    "wrong types": b'{"type":["result"],"subtype":{},"item":[],"message":"x","error":7,"usage":[]}',
    "a lone type": b'{"type":"result"}',
    "wrong parts": b'{"type":"tool_use","part":[],"parameters":3,"error":{"data":"x"}}',
    "wrong inner parts": b'{"type":"text","sessionID":7,"part":{"text":{},"state":[]},"data":[{}]}',
    "an unhashable name": b'{"type":"tool_use","part":{"tool":{},"state":{"input":"x"}},"tool_name":[]}',
    "content as text": b'{"type":"assistant","message":{"content":"hello"}}',
    "other parts": b'{"type":"user","message":{"content":[1,null,[],{"type":"tool_result","content":[3]}]}}',
    "many parts": b'{"type":"assistant","message":{"content":[' + b'{"type":"text","text":"x"},' * 9999 + b"{}]}}",
}


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_line(agent: str, line: bytes) -> None:
    judge(agent, [line])
    judge(agent, [line], exit_code=1)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("begin", [b"x", b'{"type":"result","result":"', b"{", b" ", b"```shunter-result"])
@pytest.mark.timeout(60)
def test_a_line_of_50_megabytes(agent: str, begin: bytes) -> None:
    line = begin + b"a" * 50_000_000
    judge(agent, [b"```shunter-result", line, b"```", b'{"type":"turn.completed"}'])


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.timeout(60)
def test_half_a_million_lines(agent: str) -> None:
    load(agent).find_outcome(an_end(*[b'{"type":"error","message":"Reconnecting... (stream closed)"}'] * 500_000))
