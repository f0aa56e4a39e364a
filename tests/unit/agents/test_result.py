from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shunter.agents.result import SCHEMA, Blocks, parse_result, read_result
from shunter.wire.messages import Question

WHOLE = {
    "status": "needs_input",
    "summary": "s",
    "questions": [{"text": "q", "options": ["a"]}],
    "files_changed": ["f"],
}
DONE = b'{"status":"done","summary":"s"}'


def objects_in(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from objects_in(inner)


def test_the_schema_is_one_that_strict_providers_take() -> None:
    found = list(objects_in(SCHEMA))
    assert len(found) == 2
    for each in found:
        assert each["required"] == list(each["properties"])
        assert each["additionalProperties"] is False
    words = json.dumps(SCHEMA)
    assert not any(word in words for word in ("maxLength", "maxItems", "pattern", "format", "default", "$ref"))


def test_a_whole_result_is_read() -> None:
    result = parse_result(WHOLE)
    assert result is not None
    assert (result.status, result.summary, result.files_changed) == ("needs_input", "s", ("f",))
    assert [(each.text, each.options) for each in result.questions] == [("q", ("a",))]


def test_lists_may_be_left_out_and_unknown_keys_are_let_pass() -> None:
    assert parse_result({"status": "done", "summary": "", "mood": 1}) is not None
    assert parse_result(WHOLE | {"questions": [{"text": "q"}]}) is not None


@pytest.mark.parametrize(
    ("questions", "first"),
    [
        (["q"], Question("q")),
        ([{"question": "q"}], Question("q")),
        ([{"text": "q", "options": [1, 2.5, "b"]}], Question("q", ("1", "2.5", "b"))),
    ],
)
def test_what_can_mean_one_thing_only_is_let_pass(questions: list[Any], first: Question) -> None:
    result = parse_result(WHOLE | {"questions": questions, "files_changed": [None]})
    assert result is not None
    assert (result.questions, result.files_changed) == ((first,), ())


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "DONE"},
        {"status": None},
        {"status": ["done"]},
        {"status": {}},
        {"summary": None},
        {"summary": 1},
        {"questions": None},
        {"questions": {}},
        {"questions": [1]},
        {"questions": [{"question": 1}]},
        {"questions": [{"text": 1, "options": []}]},
        {"questions": [{"text": "q", "options": "ab"}]},
        {"questions": [{"text": "q", "options": [None]}]},
        {"questions": [{"text": "q", "options": [True]}]},
    ],
)
def test_a_wrong_type_is_no_result(wrong: dict[str, Any]) -> None:
    assert parse_result(WHOLE | wrong) is None


@pytest.mark.parametrize("value", [None, [], "done", 1, True, {}])
def test_no_object_is_no_result(value: Any) -> None:
    assert parse_result(value) is None


def test_what_is_too_long_is_cut() -> None:
    questions = [{"text": "\u00fc" * 9999, "options": ["o" * 9999] * 99}] * 99
    result = parse_result({"status": "blocked", "summary": "\u00fc" * 9999, "questions": questions})
    assert result is not None
    assert len(result.summary.encode()) <= 8192
    assert result.summary.endswith("\u2026")
    assert len(result.questions) == len(result.questions[0].options) == 32
    assert len(result.questions[0].text.encode()) <= 2048


def test_lone_surrogates_do_not_leave_the_parser() -> None:
    _, result = read_result('{"status":"done","summary":"\\ud800x"}')
    assert result is not None
    assert result.summary == "?x"


def blocks_of(lines: list[bytes]) -> Blocks:
    blocks = Blocks()
    for line in lines:
        blocks.take(line)
    return blocks


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([b"```shunter-result", DONE, b"```"], True),
        ([b"text", b"  ```shunter-result  ", DONE, b"```\r", b"more text"], True),
        ([b"```shunter-result", b"{", b'"status":"done",', b'"summary":"s"}', b"```"], True),
        ([b"```shunter-result", b"broken", b"```", b"```shunter-result", DONE, b"```"], True),
        ([b"```shunter-result", b"broken", b"```shunter-result", DONE, b"```"], True),
        ([b"``` shunter-result json", DONE, b"````"], True),
        ([b"````shunter-result", DONE, b"````"], True),
        ([b"````shunter-result", DONE, b"```"], False),
        ([b"```shunter-result", DONE, b"    ```"], False),
        ([b"```shunter-result", DONE, b"```", b"```shunter-result", b"broken", b"```"], False),
        ([b"```shunter-result", DONE, b"```", b"```shunter-result", DONE], False),
        ([b"```shunter-result", DONE], False),
        ([b"```shunter-result " + DONE + b"```"], False),
        ([b"```shunter-result {", DONE[1:], b"```"], False),
        ([b"```shunter-result", DONE + b" " * 300_000, b"```"], False),
    ],
)
def test_the_last_closed_block_counts(lines: list[bytes], found: bool) -> None:
    blocks = blocks_of(lines)
    assert (blocks.tried, blocks.result is not None) == (True, found)


@pytest.mark.parametrize(
    "fence", [b"```json", b"> ```shunter-result", b"    ```shunter-result", b"\t```shunter-result"]
)
def test_what_is_quoted_or_another_block_is_none(fence: bytes) -> None:
    blocks = blocks_of([fence, DONE, b"```"])
    assert (blocks.tried, blocks.result) == (False, None)


@pytest.mark.parametrize("line", [b"", b"```shunter-results", b"```shunter-result``` is what it takes", b"`" * 1000])
def test_a_line_that_opens_no_block(line: bytes) -> None:
    blocks = blocks_of([line, DONE, b"```"])
    assert (blocks.tried, blocks.result) == (False, None)


def test_a_question_stays_one_whatever_is_said_behind_it() -> None:
    asks = '{"status": "needs_input", "summary": "s", "questions": ["Which port?"]}'
    result = read_result(f"```shunter-result\n{asks}\n```\nTell me, please.")[1]
    assert result is not None and result.questions[0].text == "Which port?"


@pytest.mark.parametrize(
    ("behind", "found"), [("", True), ("\n", True), (" \r\n\t\n", True), ("\nBye.", False), ("\n    indented", False)]
)
def test_a_message_ends_with_its_block(behind: str, found: bool) -> None:
    tried, result = read_result(f"You asked for:\n```shunter-result\n{DONE.decode()}\n```{behind}")
    assert (tried, result is not None) == (True, found)
