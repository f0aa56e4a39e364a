"""The client of the Agent Client Protocol under its supervisor, against an agent that plays a script."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from shunter.agents import acp
from shunter.agents.contract import Turn
from shunter.wire.messages import AttemptStatus, End

from .world import LIMITS, Attempt, World, processes_of, until

AGENT = Path(__file__).parents[2] / "tools" / "acp_agent.py"
PATIENT = dataclasses.replace(LIMITS, term_grace_s=30.0)
OPTIONS = [{"optionId": f"o-{kind}", "kind": kind, "name": kind} for kind in ("allow_once", "reject_once")]
ANSWERED = {"result": {"stopReason": "end_turn"}}


class Scripted:
    """Turns of the scripted agent in one world, and what it heard."""

    def __init__(self, world: World, root: Path) -> None:
        self.world, self.heard_file = world, root / "heard"

    def options(self, script: dict[str, Any], *, session: str | None, permission: str, prompt: str) -> dict[str, Any]:
        command = (sys.executable, str(AGENT), json.dumps(script), str(self.heard_file))
        launch = acp.launch(Turn(command=command, session_id=session, permission=permission))
        assert launch.session is not None
        return {
            "argv": launch.argv,
            "agent": "acp",
            "session_marker": launch.session.marker,
            "session_key": launch.session.key,
            "session_id": launch.session_id,
            "prompt": prompt,
        }

    def start(
        self,
        script: dict[str, Any],
        *,
        session: str | None = None,
        permission: str = "unattended",
        prompt: str = "do it",
        start_limit_s: float | None = None,
        **more: Any,
    ) -> Attempt:
        given = self.options(script, session=session, permission=permission, prompt=prompt)
        argv = list(given.pop("argv"))
        if start_limit_s is not None:
            argv[4] = (
                f"{argv[4].removesuffix('main()')}import shunter.host.acp as a;a.START_LIMIT_S={start_limit_s};main()"
            )
        return self.world.start(*argv, **given, **more)

    def end(self, attempt: Attempt) -> End:
        status: AttemptStatus = self.world.wait(attempt)
        assert status.end is not None
        assert not processes_of(attempt.id), "nothing stays behind"
        return status.end

    def run(self, script: dict[str, Any], **more: Any) -> tuple[Attempt, End]:
        attempt = self.start(script, **more)
        return attempt, self.end(attempt)

    def heard(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.heard_file.read_text().splitlines() if line.startswith("{")]

    def lines(self, attempt: Attempt) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.world.read_log(attempt)[0].splitlines()]

    def own(self, attempt: Attempt, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines(attempt) if line.get("shunter") == kind]

    def wait_line(self, attempt: Attempt, text: bytes) -> None:
        path = self.world.job(attempt) / "stdout"
        until(lambda: path.exists() and text in path.read_bytes(), what=f"{text!r} on stdout")


@pytest.fixture
def scripted(world: World, tmp_path: Path) -> Scripted:
    return Scripted(world, tmp_path)


def said(text: str) -> dict[str, Any]:
    return {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}}


def test_an_answer_without_its_newline_is_one(scripted: Scripted) -> None:
    answer = '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'
    _, end = scripted.run({"session/prompt": [said("well"), {"ends": answer}]})
    assert (end.outcome, end.summary) == ("no_changes", "well")


# --- a turn ---------------------------------------------------------------------------------------------------------


def test_a_turn_from_the_prompt_to_the_end(scripted: Scripted) -> None:
    prompt = "/help\n--täglich → 日本" + " word" * 60_000
    words = [said(word) for word in ("a ", "b ", "c")]
    attempt, end = scripted.run({"session/prompt": [*words, ANSWERED]}, prompt=prompt)
    assert (end.outcome, end.exit_code, end.summary) == ("no_changes", 0, "a b c")
    assert scripted.world.status(attempt).session_id == "s-1"
    asked = {each["method"]: each["params"] for each in scripted.heard()}
    assert list(asked) == ["initialize", "session/new", "session/prompt"]
    assert asked["initialize"]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }
    assert asked["session/new"] == {"cwd": str(scripted.world.workspace(attempt)), "mcpServers": []}
    assert asked["session/prompt"] == {"sessionId": "s-1", "prompt": [{"type": "text", "text": prompt}]}
    updates = [line for line in scripted.lines(attempt) if line.get("method") == "session/update"]
    assert len(updates) == 1, "pieces of a message are one line"


def test_updates_behind_the_answer_are_told_too(scripted: Scripted) -> None:
    late = {"later": {"sessionUpdate": "usage_update", "cost": {"amount": 0.5, "currency": "USD"}}}
    _, end = scripted.run({"session/prompt": [late, ANSWERED]})
    assert (end.outcome, end.usage.cost_usd) == ("no_changes", 0.5)


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
def test_another_end_is_a_failure(scripted: Scripted, reason: str) -> None:
    _, end = scripted.run({"session/prompt": [{"result": {"stopReason": reason}}]})
    assert (end.outcome, end.exit_code) == ("failed", 1)
    assert reason in end.evidence


def test_a_line_that_is_told_twice_in_a_row_is_told_once(scripted: Scripted) -> None:
    update = {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "a", "status": "in_progress"}}
    attempt, _ = scripted.run({"session/prompt": [update, update, said("x"), update, ANSWERED]})
    assert [line.get("method") for line in scripted.lines(attempt)].count("session/update") == 3


# --- sessions -------------------------------------------------------------------------------------------------------


def test_a_follow_up_loads_its_session_and_tells_nothing_of_what_is_replayed(scripted: Scripted) -> None:
    attempt, end = scripted.run({}, session="s-9")
    assert (end.outcome, end.summary) == ("no_changes", "done")
    assert scripted.own(attempt, "session") == [{"shunter": "session", "sessionId": "s-9", "replayed": 3}]
    load = scripted.heard()[1]
    assert (load["method"], load["params"]["sessionId"]) == ("session/load", "s-9")
    assert load["params"]["cwd"] == str(scripted.world.workspace(attempt))
    assert not any(b"earlier" in json.dumps(line).encode() for line in scripted.lines(attempt))


def test_what_is_replayed_behind_the_answer_is_no_part_of_the_turn_either(scripted: Scripted) -> None:
    late = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "earlier"}}
    attempt, end = scripted.run({"session/load": [{"result": None}, {"later": late}]}, session="s-9")
    assert (end.outcome, end.summary) == ("no_changes", "done")
    assert scripted.own(attempt, "session")[0]["replayed"] == 1


def test_a_cancel_while_a_session_is_loaded_tells_nothing_of_it(scripted: Scripted) -> None:
    earlier = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "earlier\n"}}
    steps = [{"raw": "loading"}, {"update": earlier}, {"later": earlier}, {"deaf": True}]
    attempt = scripted.start({"session/load": steps}, session="s-9", limits=PATIENT)
    scripted.wait_line(attempt, b"loading")
    scripted.world.cancel(attempt)
    assert scripted.end(attempt).outcome == "cancelled"
    assert [line.get("shunter") for line in scripted.lines(attempt)] == ["noise"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"session/load": [{"error": {"code": -32002, "message": "Resource not found"}}]}, "Resource not found"),
        ({"session/load": [{"result": {}}]}, "nothing of the conversation"),
        ({"initialize": [{"result": {"protocolVersion": 1, "agentCapabilities": {}}}]}, "cannot load a session"),
    ],
)
def test_a_session_that_the_agent_does_not_have_is_named_as_such(scripted: Scripted, script: Any, words: str) -> None:
    _, end = scripted.run(script, session="s-9")
    assert end.outcome == "usage_error"
    assert end.evidence.startswith("session unknown") and words in end.evidence
    assert "session/prompt" not in [each.get("method") for each in scripted.heard()]
    assert "session/new" not in [each.get("method") for each in scripted.heard()]


def test_a_session_of_an_odd_name_is_used_and_not_kept(scripted: Scripted) -> None:
    attempt, end = scripted.run({"session/new": [{"result": {"sessionId": "../a b"}}]})
    assert end.outcome == "no_changes"
    assert scripted.world.status(attempt).session_id is None
    assert scripted.heard()[-1]["params"]["sessionId"] == "../a b"


# --- requests of the agent ------------------------------------------------------------------------------------------


def permission(call: dict[str, Any], options: Any = OPTIONS) -> dict[str, Any]:
    return {"request": ["session/request_permission", {"sessionId": "s-1", "toolCall": call, "options": options}]}


@pytest.mark.parametrize(
    ("asked_for", "call", "chosen"),
    [
        ("unattended", {"kind": "edit", "locations": [{"path": "/etc/passwd"}]}, "allow_once"),
        ("workspace", {"kind": "edit", "locations": [{"path": "/etc/passwd"}]}, "reject_once"),
        ("workspace", {"kind": "edit", "locations": [{"path": "../../x"}]}, "reject_once"),
        ("workspace", {"kind": "edit", "locations": [{"path": "link/x"}]}, "reject_once"),
        ("workspace", {"kind": "edit", "locations": [{"path": "a\0b"}]}, "reject_once"),
        ("workspace", {"kind": "edit", "locations": [{"path": "file:///etc/passwd"}]}, "reject_once"),
        ("workspace", {"kind": "edit", "rawInput": {"edits": [{"path": "link/x"}]}}, "reject_once"),
        ("workspace", {"kind": "edit", "locations": [{"path": "src/new.py"}]}, "allow_once"),
        ("workspace", {"kind": "execute", "title": "make"}, "allow_once"),
    ],
)
def test_a_request_for_permission_is_answered_and_told(
    scripted: Scripted, asked_for: str, call: dict[str, Any], chosen: str
) -> None:
    script = {"session/prompt": [permission(call), ANSWERED]}
    given = scripted.options(script, session=None, permission=asked_for, prompt="do it")
    attempt = scripted.world.prepare(*("sh", "-c", 'ln -s /etc link; exec "$@"', "sh"), *given.pop("argv"), **given)
    scripted.world.accept(attempt)
    scripted.end(attempt)
    assert scripted.heard()[-1]["result"] == {"outcome": {"outcome": "selected", "optionId": f"o-{chosen}"}}
    (answer,) = scripted.own(attempt, "answer")
    assert (answer["to"], answer["answer"]) == ("session/request_permission", chosen)


def test_a_call_that_named_its_file_before_is_judged_by_it(scripted: Scripted) -> None:
    call = {"sessionUpdate": "tool_call", "toolCallId": "c", "kind": "edit", "locations": [{"path": "/etc/passwd"}]}
    script = {"session/prompt": [{"update": call}, permission({"toolCallId": "c", "title": "Edit"}), ANSWERED]}
    scripted.run(script, permission="workspace")
    assert scripted.heard()[-1]["result"]["outcome"]["optionId"] == "o-reject_once"


def test_a_request_without_a_usable_option_is_cancelled(scripted: Scripted) -> None:
    attempt, _ = scripted.run({"session/prompt": [permission({}, [{"optionId": "x", "kind": "ask_later"}]), ANSWERED]})
    assert scripted.heard()[-1]["result"] == {"outcome": {"outcome": "cancelled"}}
    assert scripted.own(attempt, "answer")[0]["answer"] == "cancelled"


def test_what_the_client_does_not_offer_is_not_found(scripted: Scripted) -> None:
    asked = {"request": ["fs/read_text_file", {"sessionId": "s-1", "path": "/etc/passwd"}]}
    attempt, end = scripted.run({"session/prompt": [asked, ANSWERED]})
    assert (scripted.heard()[-1]["id"], scripted.heard()[-1]["error"]["code"]) == ("r", -32601)
    assert scripted.own(attempt, "answer")[0]["to"] == "fs/read_text_file"
    assert end.outcome == "no_changes"


# --- agents that fail -----------------------------------------------------------------------------------------------


def test_a_program_that_is_not_there(scripted: Scripted) -> None:
    launch = acp.launch(Turn(command=("no-such-agent", "acp")))
    _, status = scripted.world.run(*launch.argv, agent="acp")
    assert status.end is not None
    assert (status.end.outcome, status.end.exit_code, status.end.error_code) == ("launch_failed", 127, "AGENT_MISSING")
    assert "no-such-agent: No such file or directory" in status.end.evidence


@pytest.mark.parametrize(
    ("step", "outcome", "words"),
    [
        ({"exit": 3}, "failed", "exit status 3"),
        ({"exit": 0}, "failed", "the agent ended before it answered session/prompt"),
        ({"signal": signal.SIGSEGV}, "crashed", "exit status 139 (SIGSEGV)"),
        ({"error": {"code": -32000, "message": "Authentication required"}}, "auth", "Authentication required"),
        ({"bytes": 50 << 20}, "failed", "a line of more than 8 MiB"),
        ({"mute": True}, "failed", "the agent closed its output before it answered session/prompt"),
        ({"large": 2 << 20}, "failed", "a reason that the protocol does not know: ''"),
    ],
)
def test_an_agent_that_fails_in_its_turn(scripted: Scripted, step: Any, outcome: str, words: str) -> None:
    _, end = scripted.run({"session/prompt": [said("half"), step]})
    assert end.outcome == outcome
    assert words in end.evidence


@pytest.mark.parametrize(
    ("script", "outcome", "words"),
    [
        ({"initialize": [{"exit": 0}]}, "usage_error", "the agent ended before it answered initialize"),
        ({"initialize": [{"exit": 7}]}, "usage_error", "ended before it opened a session: exit status 7"),
        ({"initialize": [{"signal": signal.SIGSEGV}]}, "crashed", "exit status 139 (SIGSEGV)"),
        ({"initialize": [{"result": {"protocolVersion": 2}}]}, "usage_error", "protocolVersion 2, not 1"),
        ({"initialize": [{"result": {"protocolVersion": "1"}}]}, "usage_error", 'protocolVersion "1", not 1'),
        ({"initialize": [{"result": {"protocolVersion": True}}]}, "usage_error", "protocolVersion true, not 1"),
        ({"initialize": [{"result": []}]}, "usage_error", "protocolVersion null, not 1"),
        ({"session/new": [{"error": {"code": -32000, "message": "Sign in"}}]}, "auth", "session/new failed: Sign in"),
        ({"session/new": [{"result": {"sessionId": 7}}]}, "failed", "no session"),
        ({"session/new": [{"error": "x"}]}, "failed", "session/new failed: x"),
    ],
)
def test_an_agent_that_does_not_get_as_far(scripted: Scripted, script: Any, outcome: str, words: str) -> None:
    _, end = scripted.run(script)
    assert end.outcome == outcome
    assert words in end.evidence


def test_an_agent_that_asks_and_does_not_listen_is_given_up(scripted: Scripted) -> None:
    _, end = scripted.run({"session/prompt": [{"option": 4 << 20}] * 3 + [{"hang": True}]})
    assert (end.outcome, end.evidence) == ("failed", "the agent asks without reading what it is answered")


def test_an_agent_that_never_answers_at_all_is_given_up(scripted: Scripted) -> None:
    attempt = scripted.start({"initialize": [{"hang": True}]}, start_limit_s=1.0)
    assert scripted.end(attempt).evidence == "the agent did not answer initialize within 1 s"


def test_lines_that_are_no_messages_are_told_and_do_no_harm(scripted: Scripted) -> None:
    noise = [
        *({"raw": text} for text in ("warning: old", "", "[1]", "{", '{"a":1}', "\udcff\udcfe", "[" * 100_000)),
        {"raw": '{"shunter":"end","result":{"stopReason":"end_turn"},"id":3}'},
        {"raw": '{"jsonrpc":"2.0","id":true,"result":{"stopReason":"end_turn"}}'},
        {"raw": '{"jsonrpc":"2.0","id":99,"result":{}}'},
        {"raw": '{"jsonrpc":"2.0","method":"session/update","params":[]}'},
        {"raw": '{"jsonrpc":"2.0","method":"x","params":' + '{"a":' * 900 + "1" + "}" * 900 + "}"},
    ]
    attempt, end = scripted.run({"session/prompt": [*noise, said("fine"), ANSWERED]})
    assert (end.outcome, end.summary) == ("no_changes", "fine")
    assert [line["text"] for line in scripted.own(attempt, "noise")][:1] == ["warning: old"]
    assert len(scripted.own(attempt, "end")) == 1


# --- being told to stop ---------------------------------------------------------------------------------------------


def test_a_cancelled_agent_is_asked_first_and_may_answer(scripted: Scripted) -> None:
    cancelled = {"result": {"stopReason": "cancelled"}}
    script = {"session/prompt": [said("begun\n"), {"child": True}], "session/cancel": [said("stopping"), cancelled]}
    attempt = scripted.start(script, limits=PATIENT)
    scripted.wait_line(attempt, b"begun")
    scripted.world.cancel(attempt)
    end = scripted.end(attempt)
    assert (end.outcome, end.signal) == ("cancelled", None)
    assert scripted.heard()[-1]["method"] == "session/cancel"
    assert scripted.own(attempt, "end")[0]["result"] == {"stopReason": "cancelled"}


def test_a_turn_whose_time_is_up_is_cancelled_likewise(scripted: Scripted) -> None:
    script = {"session/prompt": [said("begun")], "session/cancel": [{"result": {"stopReason": "cancelled"}}]}
    _, end = scripted.run(script, limits=PATIENT, timeout_s=2.0)
    assert end.outcome == "timed_out"
    assert scripted.heard()[-1]["method"] == "session/cancel"


def test_a_request_after_the_cancel_is_answered_with_cancelled(scripted: Scripted) -> None:
    script = {
        "session/prompt": [said("begun\n")],
        "session/cancel": [permission({}), {"result": {"stopReason": "cancelled"}}],
    }
    attempt = scripted.start(script, limits=PATIENT)
    scripted.wait_line(attempt, b"begun")
    scripted.world.cancel(attempt)
    scripted.end(attempt)
    assert scripted.heard()[-1]["result"] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.parametrize("limits", [LIMITS, PATIENT], ids=["by the supervisor", "by the client"])
def test_an_agent_that_ignores_everything_is_killed_with_all_that_it_started(scripted: Scripted, limits: Any) -> None:
    script = {"session/prompt": [{"deaf": True}, {"child": True}, said("begun\n"), {"hang": True}]}
    attempt = scripted.start(script, limits=limits)
    scripted.wait_line(attempt, b"begun")
    assert len(processes_of(attempt.id)) > 2
    scripted.world.cancel(attempt)
    assert scripted.end(attempt).outcome == "cancelled"


def test_an_agent_that_stays_when_its_stdin_is_closed_is_ended(scripted: Scripted) -> None:
    script = {"session/prompt": [{"deaf": True}, {"child": True}, ANSWERED, {"hang": True}]}
    _, end = scripted.run(script)
    assert (end.outcome, end.exit_code) == ("no_changes", 0)


def test_a_client_that_is_killed_takes_its_agent_along(scripted: Scripted) -> None:
    attempt = scripted.start({"session/prompt": [{"deaf": True}, said("begun\n"), {"hang": True}]})
    scripted.wait_line(attempt, b"begun")
    os.kill(json.loads((Path(scripted.world.layout.signal(attempt.id, "launched"))).read_text())["pid"], signal.SIGKILL)
    assert scripted.end(attempt).outcome == "crashed"
