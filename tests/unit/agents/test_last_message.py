"""What every agent with an event stream takes for the result in its last message: one rule for all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shunter.agents.contract import Gap
from shunter.agents.table import load

from .recorded import an_end, without_changes

RESULT = '```shunter-result\n{"status": "done", "summary": "Fixed."}\n```'


def line(kind: str, **fields: Any) -> bytes:
    return json.dumps({"type": kind, **fields}).encode()


def in_parts(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def chunk(text: str) -> bytes:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    return json.dumps({"method": "session/update", "params": {"sessionId": "s", "update": update}}).encode()


# The events of one message and of a good end behind it.
MESSAGES = {
    "acp": chunk,
    "claude": lambda text: line("assistant", message=in_parts(text)),
    "codex": lambda text: line("item.completed", item={"type": "agent_message", "text": text}),
    "copilot": lambda text: line("assistant.message", data={"content": text}),
    "cursor": lambda text: line("assistant", message=in_parts(text)),
    "gemini": lambda text: line("message", role="assistant", content=text),
    "opencode": lambda text: line("text", part={"text": text, "messageID": "m"}),
    "qwen": lambda text: line("assistant", message=in_parts(text)),
}
ENDS = {
    "acp": lambda _: b'{"shunter": "end", "result": {"stopReason": "end_turn"}}',
    "claude": lambda text: line("result", is_error=False, result=text),
    "codex": lambda _: line("turn.completed"),
    "copilot": lambda _: line("result", exitCode=0),
    "cursor": lambda text: line("result", is_error=False, result=text),
    "gemini": lambda _: line("result", status="success"),
    "opencode": lambda _: line("step_finish", part={"reason": "stop"}),
    "qwen": lambda text: line("result", is_error=False, result=text),
}
every_agent = pytest.mark.parametrize("agent", MESSAGES)


def turn_of(agent: str, text: str) -> list[bytes]:
    return [MESSAGES[agent](text), ENDS[agent](text)]


@every_agent
@pytest.mark.parametrize("behind", ["", "\n", " \n\n"])
def test_a_block_at_the_end_is_the_result(agent: str, behind: str) -> None:
    outcome = load(agent).find_outcome(an_end(*turn_of(agent, f"Well.\n{RESULT}{behind}")))
    assert (outcome.kind, outcome.summary, outcome.structured) == ("done", "Fixed.", True)


@every_agent
@pytest.mark.parametrize("facts", [an_end, without_changes])
@pytest.mark.parametrize(
    "text",
    [f"You asked for:\n{RESULT}\nbut I could not finish.", RESULT[:-4], RESULT.replace("done", "finished")],
    ids=["followed", "not closed", "no status"],
)
def test_a_block_that_is_none_is_unknown(agent: str, facts: Any, text: str) -> None:
    outcome = load(agent).find_outcome(facts(*turn_of(agent, text)))
    assert (outcome.kind, outcome.structured) == ("unknown", False)
    assert outcome.evidence == "exit status 0, but its structured result cannot be read"


@every_agent
def test_an_indented_block_is_a_quotation(agent: str) -> None:
    quoted = "Write this:\n" + "\n".join(f"    {each}" for each in RESULT.split("\n"))
    assert load(agent).find_outcome(an_end(*turn_of(agent, quoted))).kind == "unknown"
    assert load(agent).find_outcome(without_changes(*turn_of(agent, quoted))).kind == "no_changes"


@every_agent
def test_a_message_before_a_gap_is_not_the_last(agent: str) -> None:
    whole = turn_of(agent, RESULT)
    for lines in ([*whole, Gap()], [whole[0], Gap()]):
        for facts in (an_end, without_changes):
            outcome = load(agent).find_outcome(facts(*lines, lost_bytes=4711))
            assert (outcome.kind, outcome.structured) == ("unknown", False)
        assert "4711 bytes of its output are not kept" in outcome.evidence
    assert load(agent).find_outcome(an_end(Gap(), *whole, lost_bytes=4711)).kind == "done"
