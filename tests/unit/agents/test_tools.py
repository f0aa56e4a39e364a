from __future__ import annotations

import json

import pytest

from shunter.agents.contract import Event
from shunter.agents.table import load
from shunter.agents.tools import tool_event


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("AskUserQuestion", {"questions": [{"question": "Left or\nright?"}]}, "Left or right?"),
        ("ask_user", {"question": "Which one?"}, "Which one?"),
        ("question", {}, "question"),
        ("request_user_input", {"questions": "no list"}, "request_user_input"),
    ],
)
def test_a_tool_that_asks_somebody_is_a_prompt(name: str, given: object, shown: str) -> None:
    assert tool_event(name, given) == Event("prompt", shown)


def test_a_question_of_claude_is_a_prompt_and_a_text_about_one_is_not() -> None:
    call = {"type": "tool_use", "name": "AskUserQuestion", "input": {"questions": [{"question": "Which?"}]}}
    text = {"type": "text", "text": "I would use AskUserQuestion"}
    line = json.dumps({"type": "assistant", "message": {"content": [text, call]}}).encode()
    assert [event.kind for event in load("claude").read_event(line)] == ["message", "prompt"]
