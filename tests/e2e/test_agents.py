"""The real agent command lines in a clone of this very project, their model scripted on loopback (T9-T12).

Nothing else is replaced: the installed command, its dispatcher, the helper, git and the CLIs are the real ones.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from e2e_world import World, eventually

pytestmark = pytest.mark.timeout(200)
PROJECT = Path(__file__).parents[2]
AGENTS = ("codex", "claude", "opencode", "gemini", "qwen", "copilot")
# What no CLI can do differently is tried with the two that start quickly.
QUICK = ("codex", "claude")
OVER_ACP = ("opencode", "gemini", "qwen", "copilot")
# Qwen Code asks again and again after a 429; what ends it is an account without money. Gemini does not tell until when.
LIMITS = {"codex": "openai-limit", "claude": "anthropic-limit", "gemini": "gemini-limit", "qwen": "chat-balance"}


@pytest.fixture
def project(world: World) -> World:
    """The world's repository is a clone of this project."""
    shutil.rmtree(world.repo)
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(PROJECT), str(world.repo)], check=True, env=world.env)
    world.git("config", "user.name", "User")
    world.git("config", "user.email", "user@example.org")
    return world


def use_agent(world: World, agent: str, script: str, agent_clis, agent_home, scripted_model, *, more="") -> None:
    """What a user would write into the configuration, and a profile for the key."""
    url = scripted_model.url(script)
    configure(
        world,
        f"{more}\n[agents.{agent}]\n",
        agent_clis.command(agent, url),
        agent_clis.environment(agent, url, agent_home),
    )


def use_acp(world: World, agent: str, script: str, agent_clis, agent_home, scripted_model) -> None:
    url = scripted_model.url(script)
    variables = agent_clis.environment(agent, url, agent_home)
    configure(world, '[agents.mine]\nadapter = "acp"\n', agent_clis.acp_command(agent, url), variables)


def configure(world: World, entry: str, command: tuple[str, ...], variables: dict[str, str]) -> None:
    env = ", ".join(f"{name} = {json.dumps(value)}" for name, value in variables.items())
    world.configure(more=f"{entry}command = {json.dumps(command)}\nenv = {{{env}}}\n")


def words_since(scripted_model, asked: int) -> list[str]:
    """All that users said in the requests that came after so many."""
    return [text for each in scripted_model.requests[asked:] for text in each.users]


@pytest.mark.parametrize("agent", QUICK)
def test_a_task_comes_back_as_a_branch_with_a_structured_result(project, agent, agent_clis, agent_home, scripted_model):
    use_agent(project, agent, "commit", agent_clis, agent_home, scripted_model)
    (project.root / "task.md").write_text("Add a file and commit it. Grüße, 日本語.\n")
    before = project.fingerprint()
    done = project.run("submit", "--agent", agent, "--prompt-file", str(project.root / "task.md"), "--wait", "--json")
    record = json.loads(done.stdout)
    end = record["turn"]["outcome"]
    assert (record["phrase"], end["structured"], end["exit_code"]) == ("done", True, 0), (end, project.log())
    assert end["summary"]
    assert end["usage"]["input_tokens"] > 0
    assert end["usage"]["output_tokens"] > 0
    assert record["session_id"]
    assert record["ref"] == f"refs/remotes/shunter/local/task/{record['id']}"
    tip = project.git("rev-parse", record["ref"])
    assert tip == end["publication"]["head_oid"]
    assert project.git("rev-parse", f"{tip}^") == project.git("rev-parse", "HEAD")
    remove_ref(project, record["ref"])
    assert without_new_objects(project, before)
    assert any("Grüße, 日本語" in text for asked in scripted_model.requests for text in asked.users)
    events = [json.loads(line) for line in project.run("logs", record["id"], "--json").stdout.splitlines()]
    assert {"command", "message"} <= {event["kind"] for event in events} or "tool" in {e["kind"] for e in events}
    project.assert_nothing_left_over()


def remove_ref(world: World, ref: str) -> None:
    path = world.repo / ".git" / ref
    path.unlink()
    for parent in list(path.parents)[:3]:  # task, local, shunter
        parent.rmdir()


def without_new_objects(world: World, before: str) -> bool:
    """The fingerprint as it was, once the objects that came with the result are set aside."""
    for pack in (world.repo / ".git" / "objects").rglob("*"):
        if pack.is_file() and pack.stat().st_mtime > (world.root / "task.md").stat().st_mtime:
            pack.unlink()
    for directory in sorted((world.repo / ".git" / "objects").iterdir()):
        if len(directory.name) == 2 and not any(directory.iterdir()):
            directory.rmdir()
    return world.fingerprint() == before


@pytest.mark.parametrize("agent", AGENTS)
def test_a_follow_up_goes_on_in_the_conversation_that_a_prompt_of_200_kb_began(
    project, agent, agent_clis, agent_home, scripted_model
):
    use_agent(project, agent, "commit", agent_clis, agent_home, scripted_model)
    prompt = "Grüße, 日本語, \N{SNOWMAN}: " + "a long line of a task that a program has written. " * 4100
    prompt += "remember the word heliotrope"
    assert len(prompt.encode()) > 200_000
    (project.root / "task.md").write_text(prompt)
    first = project.json("submit", "--agent", agent, "--prompt-file", str(project.root / "task.md"), "--wait")
    assert any(prompt in text for each in scripted_model.requests for text in each.users)
    end = first["turn"]["outcome"]
    assert (first["phrase"], end["structured"], first["session_id"] is not None) == ("done", True, True), end
    assert end["summary"] == "The file is committed." and end["usage"]["input_tokens"] > 0
    assert project.git("rev-list", "--count", f"HEAD..{first['ref']}") == "1"
    events = [json.loads(line)["kind"] for line in project.run("logs", first["id"], "--json").stdout.splitlines()]
    assert {"command", "message"} <= set(events) or "tool" in events
    asked = len(scripted_model.requests)
    second = project.json("say", first["id"], "--wait", "and which word was it?")
    assert (second["phrase"], second["session_id"]) == ("done", first["session_id"]), project.log()
    carried = words_since(scripted_model, asked)
    assert any("heliotrope" in text for text in carried) and any("which word was it" in text for text in carried)
    assert project.git("rev-list", "--count", f"HEAD..{second['ref']}") == "2"
    usage = second["turn"]["outcome"]["usage"]
    assert 0 < usage["output_tokens"] <= 2 * first["turn"]["outcome"]["usage"]["output_tokens"], usage


@pytest.mark.parametrize("agent", QUICK)
def test_a_fresh_conversation_is_told_what_was_said_before(project, agent, agent_clis, agent_home, scripted_model):
    use_agent(project, agent, "commit", agent_clis, agent_home, scripted_model)
    first = project.json("submit", "--agent", agent, "--wait", "remember the word heliotrope")
    fresh = project.json("say", "--fresh", first["id"], "--wait", "once more")
    assert fresh["phrase"] == "done" and fresh["session_id"] not in (None, first["session_id"])
    assert any("[turn 1, asked]" in text and "heliotrope" in text for text in scripted_model.requests[-1].users)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_login_that_fails_is_never_done(project, agent, agent_clis, agent_home, scripted_model):
    script = "anthropic-401" if agent == "claude" else "openai-401"
    use_agent(project, agent, script, agent_clis, agent_home, scripted_model)
    done = project.run("submit", "--agent", agent, "--wait", "--json", "do it", status=None)
    record = json.loads(done.stdout)
    assert record["phrase"] == "auth"
    assert done.returncode != 0


@pytest.mark.parametrize("agent", QUICK)
def test_a_session_that_the_agent_lost_is_told_and_a_fresh_one_is_offered(
    project, agent, agent_clis, agent_home, scripted_model
):
    use_agent(project, agent, "commit", agent_clis, agent_home, scripted_model)
    first = project.json("submit", "--agent", agent, "--wait", "first")
    for path in (agent_home.path / agent).rglob(f"*{first['session_id']}*"):
        path.unlink() if path.is_file() else shutil.rmtree(path)
    if agent == "codex":
        for path in (agent_home.path / agent).glob("*.sqlite*"):
            path.unlink()
    lost = project.json("say", first["id"], "second", "--wait", status=1)
    assert lost["phrase"] == "usage_error" and lost["turn"]["outcome"]["evidence"].startswith("session unknown"), lost
    assert f"shunter say {first['id']} --fresh" in project.out("result", first["id"])
    assert project.json("say", first["id"], "--fresh", "third", "--wait")["phrase"] == "done"


@pytest.mark.parametrize("agent", AGENTS)
def test_a_question_is_answered_in_the_same_conversation(project, agent, agent_clis, agent_home, scripted_model):
    use_agent(project, agent, "ask", agent_clis, agent_home, scripted_model)
    first = project.json("submit", "--agent", agent, "--wait", "ask me", status=None)
    assert first["phrase"] == "needs_input"
    assert "2. right" in project.out("result", first["id"])
    asked = len(scripted_model.requests)
    project.json("say", first["id"], "--answer", "2", "--wait", status=None)
    carried = words_since(scripted_model, asked)
    assert any("Question: Which one?\nAnswer: right" in text for text in carried)


@pytest.mark.parametrize("agent", [*QUICK, "copilot"])  # the others ask again for minutes before they give up
def test_an_overload_is_repeated_in_the_same_session(project, agent, agent_clis, agent_home, scripted_model):
    script = "anthropic-529" if agent == "claude" else "openai-500"
    pause = '[retry]\noverload_pause = "8s"\n'
    use_agent(project, agent, script, agent_clis, agent_home, scripted_model, more=pause)
    task = project.out("submit", "--agent", agent, "remember the word heliotrope")
    eventually(lambda: project.json("status", task)["again_at"], limit_s=90)
    former = project.json("status", task)
    scripted_model.play(script, "commit")
    (shown,) = project.wait(task)
    first, second = (turn["outcome"] for turn in shown["turns"])
    assert (first["outcome"], first["tool_calls"], second["outcome"]) == ("overload", 0, "done"), shown
    assert former["session_id"] in (None, shown["session_id"])
    assert any("heliotrope" in text for text in scripted_model.requests[-1].users)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_limit_says_until_when(project, agent, agent_clis, agent_home, scripted_model):
    use_agent(project, agent, LIMITS.get(agent, "chat-limit"), agent_clis, agent_home, scripted_model)
    before = time.time()
    record = project.json("submit", "--agent", agent, "--wait", "do it", status=None)
    limit = record["turn"]["outcome"]["limit"]
    assert record["phrase"] == "limit", record
    if agent == "gemini":
        assert (limit["window"], limit["renews"]) == ("daily", True)
    elif agent == "qwen":
        assert not limit["renews"]
    else:
        assert before + 3500 < limit["resets_at"] < time.time() + 3700, limit
        assert "limit until " in project.out("list")
        assert "resets " in project.out("result", record["id"])


@pytest.mark.parametrize("agent", QUICK)
def test_left_overs_of_an_agent_are_committed(project, agent, agent_clis, agent_home, scripted_model):
    use_agent(project, agent, "leave", agent_clis, agent_home, scripted_model)
    record = json.loads(project.run("submit", "--agent", agent, "--wait", "--json", "do it", status=None).stdout)
    publication = record["turn"]["outcome"]["publication"]
    assert publication["leftovers_committed"], record
    assert publication["commits"] == 1


def first_turn_over_acp(project: World, agent: str) -> tuple[dict, str]:
    """The record of a turn that committed, and what its log shows."""
    first = project.json("submit", "-a", "mine", "--wait", "remember the word heliotrope")
    end = first["turn"]["outcome"]
    assert (first["phrase"], end["structured"], end["summary"]) == ("done", True, "The file is committed."), end
    assert (end["permission"], end["usage"]["output_tokens"] > 0, end["exit_code"]) == ("unattended", True, 0), end
    assert project.git("rev-list", "--count", f"HEAD..{first['ref']}") == "1"
    shown = project.out("logs", first["id"])
    assert "git commit -q -m" in shown and "The file is committed." in shown
    assert agent == "opencode" or "session/request_permission" in shown, "the others ask before they run a command"
    return first, shown


# Gemini loses a session that is loaded in the minute of the clock in which it began.
@pytest.mark.parametrize("agent", [agent for agent in OVER_ACP if agent != "gemini"])
def test_over_acp_a_follow_up_goes_on_in_the_same_conversation(project, agent, agent_clis, agent_home, scripted_model):
    use_acp(project, agent, "commit", agent_clis, agent_home, scripted_model)
    first, shown = first_turn_over_acp(project, agent)
    asked = len(scripted_model.requests)
    second = project.json("say", first["id"], "--wait", "and which word was it?")
    assert (second["phrase"], second["session_id"]) == ("done", first["session_id"]), project.log()
    carried = words_since(scripted_model, asked)
    assert any("heliotrope" in text for text in carried) and any("which word was it" in text for text in carried)
    assert project.git("rev-list", "--count", f"HEAD..{second['ref']}") == "2"
    used = [each["turn"]["outcome"]["usage"]["output_tokens"] for each in (first, second)]
    assert used[0] == used[1], "nothing of what was replayed counts"
    assert project.out("logs", second["id"]).count("git commit -q -m") == shown.count("git commit -q -m")
    project.assert_nothing_left_over()


def test_over_acp_gemini_commits(project, agent_clis, agent_home, scripted_model):
    use_acp(project, "gemini", "commit", agent_clis, agent_home, scripted_model)
    first_turn_over_acp(project, "gemini")


@pytest.mark.parametrize("agent", [agent for agent in OVER_ACP if agent != "copilot"])  # the next test cancels it
def test_over_acp_a_cancelled_turn_leaves_no_process_of_the_agent(
    project, agent, agent_clis, agent_home, scripted_model
):
    use_acp(project, agent, "slow", agent_clis, agent_home, scripted_model)
    task = project.out("submit", "-a", "mine", "do it")
    eventually(lambda: any(b"time.sleep(600)" in line for line in command_lines(project)), limit_s=120)
    project.out("cancel", task)
    (status,) = project.wait(task)
    assert status["turn"]["state"] == "cancelled"
    project.assert_nothing_left_over()


def command_lines(world: World) -> list[bytes]:
    found = []
    for pid in world.tagged_processes():
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cmdline").read_bytes())
    return found


def test_over_acp_a_turn_that_is_interrupted_goes_on_in_its_session(project, agent_clis, agent_home, scripted_model):
    use_acp(project, "copilot", "slow", agent_clis, agent_home, scripted_model)
    task = project.out("submit", "-a", "mine", "remember the word heliotrope")
    eventually(lambda: any(b"time.sleep(600)" in line for line in command_lines(project)), limit_s=120)
    session = project.json("status", task)["session_id"]
    asked = len(scripted_model.requests)
    project.out("say", task, "--interrupt", "do something else")
    eventually(lambda: project.json("status", task)["turn"]["number"] == 2, limit_s=60)
    eventually(lambda: len(scripted_model.requests) > asked, limit_s=120)
    project.out("cancel", task)
    (status,) = project.wait(task)
    assert (status["turn"]["number"], status["session_id"]) == (2, session)
    users = scripted_model.requests[asked].users
    assert any("heliotrope" in text for text in users) and any("do something else" in text for text in users)
    project.assert_nothing_left_over()


@pytest.mark.parametrize(
    ("agent", "script", "phrase"), [("opencode", "openai-401", "auth"), ("gemini", "gemini-limit", "limit")]
)
def test_over_acp_a_refusal_of_the_provider_is_told_apart(
    project, agent, script, phrase, agent_clis, agent_home, scripted_model
):
    use_acp(project, agent, script, agent_clis, agent_home, scripted_model)
    record = project.json("submit", "-a", "mine", "--wait", "do it", status=None)
    assert record["phrase"] == phrase, record


def test_over_acp_a_session_that_is_lost_is_told_and_a_fresh_one_is_offered(
    project, agent_clis, agent_home, scripted_model
):
    use_acp(project, "copilot", "ask", agent_clis, agent_home, scripted_model)
    first = project.json("submit", "-a", "mine", "--wait", "first", status=None)
    assert (first["phrase"], first["turn"]["outcome"]["structured"]) == ("needs_input", True)
    shutil.rmtree(agent_home.path / ".copilot")
    lost = project.json("say", first["id"], "second", "--wait", status=1)
    assert lost["phrase"] == "usage_error" and lost["turn"]["outcome"]["evidence"].startswith("session unknown"), lost
    assert f"shunter say {first['id']} --fresh" in project.out("result", first["id"])
    assert project.json("say", first["id"], "--fresh", "third", "--wait", status=None)["phrase"] == "needs_input"


@pytest.mark.parametrize("agent", AGENTS)
def test_a_cancelled_turn_leaves_no_process_and_a_follow_up_goes_on_in_its_session(
    project, agent, agent_clis, agent_home, scripted_model
):
    use_agent(project, agent, "slow", agent_clis, agent_home, scripted_model)
    task = project.out("submit", "-a", agent, "remember the word heliotrope")
    eventually(lambda: any(b"time.sleep(600)" in line for line in command_lines(project)), limit_s=120)
    session = project.json("status", task)["session_id"]
    scripted_model.play("slow", "commit")
    asked = len(scripted_model.requests)
    if agent in QUICK:
        project.out("say", task, "--interrupt", "and which word was it?")
    else:
        project.out("cancel", task)
        (cancelled,) = project.wait(task)
        assert cancelled["turn"]["state"] == "cancelled"
        project.assert_nothing_left_over()
        project.out("say", task, "and which word was it?")
    (record,) = project.wait(task)
    assert record["turns"][0]["state"] == "cancelled"
    carried = words_since(scripted_model, asked)
    assert any("heliotrope" in text for text in carried) and any("which word was it" in text for text in carried)
    assert (record["phrase"], record["session_id"]) == ("done", session or record["session_id"]), record
    project.assert_nothing_left_over()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_whose_model_never_answers_is_ended_by_its_limit(
    project, agent, agent_clis, agent_home, scripted_model
):
    use_agent(project, agent, "hang", agent_clis, agent_home, scripted_model)
    record = project.json("submit", "-a", agent, "--timeout", "8s", "--wait", "do it", status=124)
    assert record["phrase"] == "timed_out"
    project.assert_nothing_left_over()


# Claude Code asks again without a stream and gets its answer; OpenCode asks again and again.
@pytest.mark.parametrize(
    ("agent", "phrase"),
    [
        ("claude", "done"),
        ("codex", "overload"),
        ("copilot", "overload"),
        ("gemini", "overload"),
        ("opencode", "timed_out"),
        ("qwen", "overload"),
    ],
)
def test_a_stream_that_is_cut_off_is_told(project, agent, phrase, agent_clis, agent_home, scripted_model):
    more = "[retry]\noverload = 0\n"
    use_agent(project, agent, "cut", agent_clis, agent_home, scripted_model, more=more)
    limit = "15s" if phrase == "timed_out" else "50s"
    record = project.json("submit", "-a", agent, "--timeout", limit, "--wait", "do it", status=None)
    assert record["phrase"] == phrase, record["turn"]["outcome"]
    project.assert_nothing_left_over()


def test_a_repeat_begins_anew_where_a_session_without_an_answer_is_not_kept(
    project, agent_clis, agent_home, scripted_model
):
    more = '[retry]\noverload_pause = "3s"\n'
    use_agent(project, "gemini", "cut", agent_clis, agent_home, scripted_model, more=more)
    task = project.out("submit", "-a", "gemini", "do it")
    eventually(lambda: project.json("status", task)["turn"]["number"] == 2, limit_s=60)
    scripted_model.play("cut", "commit")
    (record,) = project.wait(task)
    assert (record["phrase"], record["turn"]["repeat_number"], record["turn"]["fresh_session"]) == ("done", 1, True)


def test_a_host_is_asked_who_is_signed_in(world, agent_clis, agent_home):
    """With the real CLIs, in homes that nobody signed in to, then with a stored login and with one in a profile."""
    programs = str(agent_clis.programs)
    codex_home = agent_home.path / "codex"
    (world.home / ".profile").write_text(f"PATH={programs}:$PATH\nCODEX_HOME={codex_home}\nexport PATH CODEX_HOME\n")
    (world.home / ".bash_profile").write_text(". ~/.profile\n")
    world.configure(slots=1)
    with world.config.open("a") as config:
        config.write('[[hosts]]\nname = "other"\nenabled = false\ndata_root = "/tmp/unused"\n')
    world.config.write_text(world.config.read_text().replace("slots = 1", "slots = 1\nreserve_mb = 100", 1))

    def found() -> dict[str, dict]:
        return {each["what"].removeprefix("agent "): each for each in world.json("host", "check", "local")}

    told = found()
    for agent, remedy in (("codex", "codex login"), ("claude", "claude auth login")):
        assert "not signed in" in told[agent]["found"] and remedy in told[agent]["remedy"]
    task = world.out("submit", "-a", "codex", "do it")
    eventually(lambda: "nobody is signed in to codex" in world.out("status", task))
    profile = world.config.parent / "env" / "work.env"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text("ANTHROPIC_API_KEY=sk-ant-fake\n")
    profile.chmod(0o600)
    env = {**world.env, "CODEX_HOME": str(codex_home)}
    subprocess.run([f"{programs}/codex", "login", "--with-api-key"], input=b"sk-fake", env=env, check=True)
    told = found()
    assert told["codex"]["found"].endswith("signed in") and "codex-cli" in told["codex"]["found"]
    assert "not signed in" in told["claude"]["found"] and told["claude@work"]["found"].endswith(", signed in")
    assert "sk-" not in (world.data / "agents.json").read_text()
    (local,) = [each for each in world.json("hosts", "--refresh") if each["name"] == "local"]
    able = [each for each in local["agents"] if each.partition("@")[0] in ("claude", "codex")]
    assert able == ["claude@work", "codex", "codex@work"]
    eventually(lambda: world.json("status", task)["phrase"] != "waiting")
    world.run("cancel", task)
