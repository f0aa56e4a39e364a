from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.host.acplines import PIECE_CHARACTERS, Lines, LineTooLongError, Pieces, frame_of


def piece(text: Any, kind: str = "agent_message_chunk", **more: Any) -> dict[str, Any]:
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}, **more}
    return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}}


def texts(lines: list[bytes]) -> list[str]:
    return [json.loads(line)["params"]["update"]["content"]["text"] for line in lines]


def told(messages: list[dict[str, Any]]) -> list[bytes]:
    pieces, lines = Pieces(), []
    for message in messages:
        frame = frame_of(message)
        assert frame is not None
        lines += pieces.take(message, frame)
    return [*lines, *pieces.end()]


@given(st.lists(st.binary(max_size=20)), st.integers(1, 7))
def test_lines_are_the_same_however_the_bytes_come(given_lines: list[bytes], size: int) -> None:
    whole = b"\n".join(given_lines)
    lines = Lines()
    found = [line for at in range(0, len(whole), size) for line in lines.feed(whole[at : at + size])]
    assert [*found, lines.rest()] == whole.split(b"\n")


@pytest.mark.parametrize("data", [[b"ab\n" + b"x" * 9], [b"ab\nxxxx", b"xxxxx"], [b"ab\n" + b"x" * 9 + b"\ncd\n"]])
def test_a_line_over_the_limit_is_an_error_behind_those_before_it(data: list[bytes]) -> None:
    lines = Lines(limit_bytes=8)
    found = (line for each in data for line in lines.feed(each))
    assert next(found) == b"ab"
    with pytest.raises(LineTooLongError):
        next(found)


def test_words_become_one_message() -> None:
    (line,) = told([piece(word) for word in ("Only ", "one ", "", "line.")])
    assert json.loads(line) == piece("Only one line.")


@given(st.lists(st.text(alphabet="ab\n", max_size=3000), max_size=5))
def test_nothing_of_a_text_is_lost_and_no_piece_is_long(words: list[str]) -> None:
    found = texts(told([piece(word) for word in words]))
    assert "".join(found) == "".join(words)
    assert all(len(text) <= PIECE_CHARACTERS for text in found)


def test_a_long_text_is_cut_at_the_end_of_a_line() -> None:
    line = "x" * (PIECE_CHARACTERS - 100) + "\n"
    assert texts(told([piece(line * 3)])) == [line] * 3


def test_what_differs_in_more_than_its_text_is_not_joined() -> None:
    usage = {"usage": {"inputTokens": 1}}
    lines = told([piece("a"), piece("b", "agent_thought_chunk"), piece("c", messageId="1"), piece("", _meta=usage)])
    assert texts(lines) == ["a", "b", "c", ""]
    assert json.loads(lines[-1]) == piece("", _meta=usage)


def test_in_a_pause_the_whole_lines_are_told() -> None:
    pieces, message = Pieces(), piece("one\ntwo\nthr")
    frame = frame_of(message)
    assert frame is not None and not list(pieces.take(message, frame)) and pieces.has_lines
    assert texts(list(pieces.pause())) == ["one\ntwo\n"]
    assert not pieces.has_lines and not list(pieces.pause())
    assert texts(list(pieces.end())) == ["thr"]


@pytest.mark.parametrize(
    "message",
    [
        *({}, {"method": "session/update"}, {"method": "session/update", "params": []}, piece(None), piece(7)),
        *(piece("x", "user_message_chunk"), piece("x", "tool_call"), piece("x", content=[]), piece("x", content="x")),
        piece("x", _meta={"much": "x" * 5000}),
        {**piece("x"), "method": "other"},
    ],
)
def test_anything_else_is_no_piece(message: dict[str, Any]) -> None:
    assert frame_of(message) is None
