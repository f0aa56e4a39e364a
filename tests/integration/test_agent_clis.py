"""The real CLIs, started as the adapters say, against a scripted model: what was learned about them still holds."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import uuid
from pathlib import Path

import pytest
from agents_fixtures import AgentClis, AgentHome, Ran
from tools.scripted_model import ScriptedModel

from shunter.agents.contract import Ended, Launch, Outcome, Turn
from shunter.agents.result import SCHEMA
from shunter.agents.table import load
from shunter.wire.messages import Usage

pytestmark = pytest.mark.timeout(300)
AGENTS = ("codex", "claude")
# Their turns are tried end to end; here it is what only the CLI itself can tell.
SLOW = ("opencode", "gemini", "qwen", "copilot")
MODELS = {
    "opencode": ("scripted/scripted-1", "high"),
    "gemini": ("gemini-2.5-flash", None),
    "qwen": ("scripted-2", None),
    "copilot": ("scripted-2", "low"),
}
EVERY = pytest.mark.parametrize("world", (*AGENTS, *SLOW), indirect=True)


def git(directory: Path, *arguments: str) -> str:
    return subprocess.run(
        ("git", "-C", str(directory), *arguments), check=True, capture_output=True, text=True, timeout=30
    ).stdout.strip()


@dataclasses.dataclass
class World:
    """One agent in one workspace, run as a host would run it."""

    agent: str
    clis: AgentClis
    home: AgentHome
    model: ScriptedModel
    workspace: Path
    job: Path

    def turn(self, script: str, **wishes: object) -> Turn:
        url = self.model.url(script)
        wishes.setdefault("permission", "workspace" if self.agent == "codex" else "unattended")
        env = self.clis.environment(self.agent, url, self.home)
        return Turn(command=self.clis.command(self.agent, url), env=env, **wishes)  # type: ignore[arg-type]

    def play(self, turn: Turn, *, prompt: str = "do it", before: Usage | None = None) -> tuple[Launch, Ran, Outcome]:
        adapter = load(self.agent)
        launch = adapter.launch(turn)
        base = git(self.workspace, "rev-parse", "HEAD")
        last_message = self.job / "last_message"
        last_message.unlink(missing_ok=True)
        if launch.wants_schema:
            (self.job / "schema.json").write_text(json.dumps(SCHEMA))
        argv = tuple(self._filled(word) for word in launch.argv)
        ran = self.home.run(argv, prompt=adapter.prepare_prompt(prompt), cwd=self.workspace, env=launch.env)
        outcome = adapter.find_outcome(
            Ended(
                lines=ran.stdout.splitlines(),
                stderr_tail=ran.stderr[-65536:],
                exit_code=ran.returncode if ran.returncode >= 0 else None,
                signal=-ran.returncode if ran.returncode < 0 else None,
                last_message=last_message.read_text() if last_message.exists() else None,
                commits=int(git(self.workspace, "rev-list", "--count", f"{base}..HEAD")),
                files_changed=tuple(git(self.workspace, "diff", "--name-only", base).split()),
                previous_usage=before,
            )
        )
        print(outcome, ran.stderr.decode(errors="replace")[-500:])
        return launch, ran, outcome

    def _filled(self, word: str) -> str:
        places = {
            "{workspace}": self.workspace,
            "{git_dir}": self.workspace / ".git",
            "{job}": self.job,
            "{schema}": self.job / "schema.json",
            "{last_message}": self.job / "last_message",
            "{tmp}": self.home.path / "tmp",
        }
        for place, path in places.items():
            word = word.replace(place, str(path))
        return word


@pytest.fixture(params=AGENTS)
def world(request, agent_clis, agent_home, scripted_model) -> World:
    root = agent_home.path
    git(root, "init", "-q", "-b", "main", "seed")
    git(
        root / "seed",
        "-c",
        "user.name=seed",
        "-c",
        "user.email=seed@localhost",
        "commit",
        "-q",
        "--allow-empty",
        "-mbase",
    )
    git(root, "clone", "-q", "--bare", "seed", "mirror.git")
    git(root, "clone", "-q", "--shared", "mirror.git", "workspace")
    git(root / "workspace", "config", "user.name", "Agent")
    git(root / "workspace", "config", "user.email", "agent@localhost")
    (root / "job").mkdir()
    return World(request.param, agent_clis, agent_home, scripted_model, root / "workspace", root / "job")


def session_by_rule(launch: Launch, stdout: bytes) -> str:
    """What the supervisor does: bytes alone, the first line that holds the marker."""
    assert launch.session is not None
    line = next(line for line in stdout.splitlines() if launch.session.marker.encode() in line)
    found = re.search(rb'"%s"\s*:\s*"([^"\\]*)"' % launch.session.key.encode(), line)
    assert found
    return found[1].decode()


def test_a_first_turn_commits_and_hands_in_a_structured_result(world: World) -> None:
    new_id = str(uuid.uuid4())
    launch, ran, outcome = world.play(world.turn("commit", new_session_id=new_id))
    assert (outcome.kind, outcome.structured, outcome.summary) == ("done", True, "The file is committed.")
    assert git(world.workspace, "log", "-1", "--format=%s") == "scripted commit"
    assert outcome.session_id == session_by_rule(launch, ran.stdout)
    assert launch.session_id in (None, new_id)
    assert launch.session_id in (None, outcome.session_id)
    assert outcome.usage.input_tokens
    assert outcome.usage.output_tokens == 40, "two answers of 20 tokens"
    events = [event for line in ran.stdout.splitlines() for event in load(world.agent).read_event(line)]
    assert {"command", "usage", "end"} <= {event.kind for event in events}


def test_a_resumed_turn_carries_the_conversation_on_and_can_write(world: World) -> None:
    _, _, first = world.play(world.turn("commit", new_session_id=str(uuid.uuid4())), prompt="first ALPHA")
    wishes = {"session_id": first.session_id}
    launch, _, second = world.play(world.turn("commit", **wishes), prompt="second BETA", before=first.session_usage)
    said = [text.strip() for text in world.model.requests[-1].users]
    assert [said[0], said[-1]] == ["first ALPHA", "second BETA"]
    assert (second.kind, second.session_id) == ("done", first.session_id)
    assert launch.session_id == first.session_id
    assert git(world.workspace, "rev-list", "--count", "HEAD") == "3"
    assert second.usage.output_tokens == first.usage.output_tokens, "usage is this turn's, not the session's"


def test_a_question_comes_back_as_needs_input(world: World) -> None:
    _, _, outcome = world.play(world.turn("ask"))
    assert (outcome.kind, outcome.structured, outcome.summary) == ("needs_input", True, "Two ways.")
    assert [(question.text, question.options) for question in outcome.questions] == [("Which one?", ("left", "right"))]


@pytest.mark.parametrize(("case", "kind"), [("401", "auth"), ("limit", "limit")])
def test_a_refusal_by_the_provider_is_told_apart(world: World, case: str, kind: str) -> None:
    provider = "openai" if world.agent == "codex" else "anthropic"
    _, ran, outcome = world.play(world.turn(f"{provider}-{case}"))
    assert (outcome.kind, outcome.structured) == (kind, False)
    assert ran.returncode == 1


def test_an_overloaded_provider_is_told_apart(world: World) -> None:
    _, _, outcome = world.play(world.turn("openai-500" if world.agent == "codex" else "anthropic-529"))
    assert outcome.kind == "overload"


@EVERY
def test_an_unknown_session_is_named_as_such(world: World) -> None:
    _, _, outcome = world.play(world.turn("talk", session_id=str(uuid.uuid4())))
    assert outcome.kind == "usage_error"
    assert outcome.evidence.startswith("session unknown")
    assert world.model.requests == []


@EVERY
def test_an_unknown_option_is_a_usage_error(world: World) -> None:
    turn = world.turn("talk")
    _, _, outcome = world.play(dataclasses.replace(turn, command=(*turn.command, "--no-such-option")))
    assert outcome.kind == "usage_error"


@pytest.mark.parametrize("prompt", ["/help me", "  /clear", "--help", "-", "!ls", "#note", "täglich → 日本"])
def test_a_prompt_reaches_the_model_as_it_is(world: World, prompt: str) -> None:
    world.play(world.turn("talk"), prompt=prompt)
    assert world.model.requests[-1].users[-1].strip().endswith(prompt.strip())


@pytest.mark.parametrize("world", SLOW, indirect=True)
def test_a_prompt_with_everything_reaches_the_model_that_was_asked_for(world: World) -> None:
    prompt = (
        "/help me\n\n- [ ] --help, @README.md and me@example.org, `$HOME` täglich → 日本\n" + "word " * 20_000 + "end"
    )
    model, effort = MODELS[world.agent]
    _, _, outcome = world.play(world.turn("talk", model=model, effort=effort), prompt=prompt)
    assert (outcome.kind, outcome.structured, outcome.summary) == ("done", True, "Nothing was to be done.")
    assert world.model.requests[-1].model == model.rpartition("/")[2]
    seen = prompt.replace("me@", "me @") if world.agent == "qwen" else prompt
    assert seen in world.model.requests[-1].users[-1]


def test_a_large_prompt_reaches_the_model_whole(world: World) -> None:
    prompt = "word " * 40_000 + "end"
    world.play(world.turn("talk"), prompt=prompt)
    assert world.model.requests[-1].users[-1].strip() == prompt


def test_unattended_lets_commands_write_elsewhere(world: World) -> None:
    outside = world.home.path / "outside"
    with ScriptedModel({"outside": [{"shell": f"echo written > {outside}"}, {"text": "ok"}]}) as world.model:
        launch, _, _ = world.play(world.turn("outside", permission="unattended"))
    assert launch.permission == "unattended"
    assert outside.exists()


def test_workspace_keeps_commands_inside(world: World) -> None:
    missing = [program for program in load(world.agent).sandbox_programs() if not shutil.which(program)]
    outside = world.home.path / "outside"
    steps = [{"shell": f"echo written > {outside}; touch inside"}, {"text": "ok"}]
    with ScriptedModel({"outside": steps}) as world.model:
        launch, _, outcome = world.play(world.turn("outside", permission="workspace"))
    assert launch.permission == "workspace"
    assert not outside.exists()
    if missing:
        assert outcome.kind == "usage_error", "without its sandbox the agent must not start"
        assert "sandbox" in outcome.evidence
    else:
        assert (world.workspace / "inside").exists()


@EVERY
def test_the_version_command_answers(world: World) -> None:
    turn = world.turn("talk")
    argv = load(world.agent).version_argv(turn.command)
    ran = world.home.run(argv, prompt="", cwd=world.workspace, env={})
    assert ran.returncode == 0
    assert re.search(rb"\d+\.\d+\.\d+", ran.stdout)


@pytest.mark.parametrize("world", ["claude"], indirect=True)
def test_claude_stops_at_its_turn_limit(world: World) -> None:
    _, _, outcome = world.play(world.turn("loop", max_turns=2))
    assert outcome.kind == "failed"
    assert outcome.evidence.startswith("error_max_turns")


@pytest.mark.parametrize("world", ["claude"], indirect=True)
def test_claude_without_a_login_is_an_auth_failure(world: World) -> None:
    turn = world.turn("talk")
    _, _, outcome = world.play(dataclasses.replace(turn, env={"ANTHROPIC_BASE_URL": world.model.url("talk")}))
    assert outcome.kind == "auth"


@pytest.mark.parametrize("world", ["codex"], indirect=True)
def test_codex_takes_model_and_effort_after_configured_options(world: World) -> None:
    world.play(world.turn("talk", model="scripted-2", effort="low"))
    assert world.model.requests[-1].model == "scripted-2"


@pytest.mark.parametrize("world", ["codex"], indirect=True)
def test_codex_says_when_the_stream_is_cut(world: World) -> None:
    _, _, outcome = world.play(world.turn("cut"))
    assert outcome.kind == "overload"
    assert "stream disconnected" in outcome.evidence
