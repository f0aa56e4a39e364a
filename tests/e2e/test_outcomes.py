"""What a turn's end is called: never plain `done` when it was not (T11, T20, S11)."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from e2e_world import World, eventually


def ended(world: World, script: str, *words: str) -> tuple[int, dict]:
    done = world.run("submit", "--wait", "--json", "-a", f"exec:sh -c '{script}'", *words, "go", status=None)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("script", "status", "phrase"),
    [
        ("echo x > x.txt", 0, "done"),
        ("echo nothing", 0, "no_changes"),
        ("echo x > x.txt; exit 7", 7, "failed"),
        ("kill -9 $$", 137, "crashed"),
        ("kill -15 $$", 143, "crashed"),
    ],
)
def test_the_exit_status_is_the_agents_own(world, script, status, phrase):
    code, record = ended(world, script)
    assert (code, record["phrase"]) == (status, phrase)
    assert record["state"] == "open"


@pytest.fixture
def small_group():
    """A cgroup with 20 MB of memory."""
    place = Path("/sys/fs/cgroup/memory/shunter-test-oom")
    try:
        place.mkdir()
    except OSError:
        pytest.skip("needs root and a memory controller of cgroups")
    try:
        (place / "memory.limit_in_bytes").write_text(str(20 << 20))
        yield place
    finally:
        place.rmdir()


def test_an_agent_that_the_kernel_ended_for_want_of_memory(world, small_group):
    hungry = f'echo $$ > {small_group}/cgroup.procs; echo x > x.txt; exec {sys.executable} -c "bytearray(200 << 20)"'
    code, record = ended(world, hungry)
    assert (code, record["phrase"], record["turn"]["state"]) == (137, "oom", "failed")
    assert "want of memory" in record["turn"]["outcome"]["evidence"]
    assert world.git("show", f"{record['ref']}:x.txt") == "x"


def test_an_agent_that_says_nothing_is_told_while_it_waits(world):
    world.configure(limits="silent_s = 1")
    go, again = world.marks / "go", world.marks / "again"
    task = world.submit(
        f'while [ ! -e "{go}" ]; do sleep 0.1; done; while [ ! -e "{again}" ]; do date; sleep 0.1; done'
    )
    eventually(lambda: "silent (no output for" in world.out("status", task))
    go.touch()
    eventually(lambda: "heard" in [event["kind"] for event in world.json("status", task)["events"]])
    assert "silent (" not in world.out("status", task)
    again.touch()
    world.run("wait", task)
    kinds = [event["kind"] for event in world.json("status", task)["events"]]
    assert (kinds.count("silent"), kinds.count("heard")) == (1, 1)


def test_a_question_that_nobody_can_answer_is_told_while_it_waits(world):
    asks = world.root / "asks"
    asks.write_text('#!/bin/sh\necho \'{"say": "I begin"}\'\necho \'{"ask": "Left or right?"}\'\nexec sleep 600\n')
    asks.chmod(0o755)
    fields = '{ message = "say", prompt = "ask" }'
    world.configure(more=f'[agents.asker]\nadapter = "exec"\ncommand = ["{asks}"]\nfields = {fields}\n')
    task = world.out("submit", "-a", "asker", "do it")
    eventually(lambda: "it asks: Left or right?" in world.out("status", task), limit_s=30)
    assert "? Left or right?" in world.out("logs", task)
    world.run("cancel", task)
    world.wait(task)


def test_a_structured_result_is_believed_and_a_blocked_one_is_no_success(world):
    result = {
        "status": "blocked",
        "summary": "no key",
        "questions": [{"text": "which?", "options": ["a", "b"]}],
        "files_changed": [],
    }
    block = world.root / "block"
    block.write_text(f"talk\n```shunter-result\n{json.dumps(result)}\n```\n")
    code, record = ended(world, f"cat {block}")
    assert (code, record["phrase"]) == (1, "blocked"), record
    assert record["turn"]["outcome"]["questions"] == [{"text": "which?", "options": ["a", "b"]}]
    shown = world.out("result", record["id"])
    assert "which?" in shown
    assert "2. b" in shown


def test_a_program_that_is_not_there_is_named(world):
    done = world.run("submit", "--wait", "--json", "-a", "exec:no-such-agent --flag", "go", status=69)
    record = json.loads(done.stdout)
    assert (record["phrase"], record["turn"]["error_code"]) == ("launch_failed", "AGENT_MISSING")
    assert "no-such-agent" in record["turn"]["error_text"]
    assert record["turn"]["started_at"] is None
    assert "took" not in world.out("result", record["id"])


def test_a_time_limit_ends_the_turn_and_keeps_its_work(world):
    code, record = ended(world, "echo x > x.txt; sleep 300", "--timeout", "1s")
    assert (code, record["phrase"], record["turn"]["state"]) == (124, "timed_out", "timed_out")
    assert world.git("show", f"{record['ref']}:x.txt") == "x"
    world.assert_nothing_left_over()


def test_an_agent_that_asks_for_a_terminal_gets_none(world):
    code, record = ended(world, "tty; read line < /dev/tty; exit 3")
    assert (code, record["phrase"]) == (3, "failed")
    assert "not a tty" in world.out("logs", record["id"])


def test_background_work_that_outlives_the_agent_is_ended_and_told(world):
    code, record = ended(world, "(setsid setsid sleep 300 &) ; sleep 300 & echo x > x.txt")
    assert (code, record["phrase"]) == (0, "done")
    assert record["turn"]["outcome"]["background"] >= 1
    assert "background work" in world.out("result", record["id"])
    world.assert_nothing_left_over()


def test_output_over_the_cap_keeps_head_and_tail_and_marks_the_gap(world):
    world.configure(limits="output_cap_mb = 1\ntail_kb = 64")
    code, record = ended(
        world, "head -c 20000000 /dev/zero | tr '\\''\\0'\\'' x; echo; echo the-end".replace("'\\''", '"')
    )
    assert code == 0
    shown = world.out("logs", record["id"])
    assert "are not kept" in shown
    assert shown.endswith("the-end")
    raw = world.run("logs", "--raw", record["id"]).stdout
    assert (1 << 20) + 65_536 <= len(raw) <= (1 << 20) + 2 * 65_536


def test_control_characters_of_an_agent_are_made_visible(world):
    _, record = ended(world, 'printf "\\033[31mred\\033]0;title\\007\\n"')
    assert "\\x1b[31mred" in world.out("logs", record["id"])
    assert "\x1b" not in world.out("logs", record["id"]) + world.out("result", record["id"])


def test_the_agent_sees_its_own_environment_and_nothing_of_the_callers(world):
    env = {"AWS_SECRET_ACCESS_KEY": "s", "GH_TOKEN": "t", "SSH_AUTH_SOCK": "/nowhere", "FOO": "bar"}
    done = world.run("submit", "--wait", "--json", "-a", "exec:env", "go", env=env, status=None)
    record = json.loads(done.stdout)
    seen = dict(line.partition("=")[::2] for line in world.out("logs", record["id"]).splitlines())
    assert not set(env) & set(seen)
    assert seen["SHUNTER_TASK"] == record["id"]
    assert seen["HOME"] == str(world.home)
    assert seen["TMPDIR"].startswith(str(world.data))


def test_a_profile_is_read_on_the_host_when_only_its_owner_may(world):
    profile = world.root / "config" / "shunter" / "env" / "keys.env"
    profile.parent.mkdir()
    profile.write_text("# keys\nexport MY_KEY='q7 w9z'\n")
    profile.chmod(0o644)
    code, record = ended(world, "echo $MY_KEY", "--env-profile", "keys")
    assert (code, record["turn"]["error_code"]) == (69, "ENV_PROFILE_PERMISSIONS")
    assert "chmod 600" in record["turn"]["error_text"] + world.out("result", record["id"])
    profile.chmod(0o600)
    _, record = ended(world, 'test -n "$MY_KEY" && echo there', "--env-profile", "keys")
    assert world.out("logs", record["id"]) == "there"
    assert not world.files_with(b"q7 w9z"), "values stand in the job's own file, which is closed to others"


def test_close_removes_the_workspace_and_keeps_the_branch(world):
    _, record = ended(world, "echo x > x.txt; mkdir ro; touch ro/f; chmod 500 ro")
    workspace = world.data / "tasks" / record["id"] / "workspace"
    assert workspace.exists()
    world.out("close", record["id"])
    assert not workspace.exists()
    assert world.git("show", f"{record['ref']}:x.txt") == "x"
    assert world.json("list") == []
    assert world.json("status", record["id"])["state"] == "closed"
    assert not list((world.state / "prompts").iterdir())
    assert world.out("close", record["id"]), "repeating it is harmless"


def test_close_refuses_what_home_does_not_have(world):
    hidden = world.root / "hidden"
    task = world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done; echo x > x.txt')
    eventually(lambda: world.json("status", task)["phrase"] == "running")
    world.repo.rename(hidden)
    (world.marks / "go").touch()
    world.run("wait", task, status=70, cwd=world.root)
    status = world.json("status", task, cwd=world.root)
    assert status["turn"]["error_code"] == "FETCH_FAILED"
    assert b"RESULT_UNDELIVERED" in world.run("close", task, status=64, cwd=world.root).stderr
    hidden.rename(world.repo)
    assert world.out("reconcile")
    assert world.json("status", task)["turn"]["error_code"] is None
    assert world.git("show", f"shunter/local/task/{task}:x.txt") == "x"
    world.out("close", task)


def test_work_on_another_branch_is_told_kept_and_can_be_fetched(world):
    script = "git checkout -q -b side; echo w > w.txt; git add .; git commit -qm side; git checkout -q -"
    _, record = ended(world, script)
    shown = world.out("result", record["id"])
    assert f"shunter fetch --kept {record['id']}" in shown
    assert "fetch --kept" in world.out("close", record["id"])
    world.out("fetch", "--kept", record["id"], status=None)
    assert world.git("show", f"shunter/local/kept/{record['id']}/1:w.txt") == "w"


def test_a_result_can_be_fetched_into_a_checkout_that_moved(world):
    task = world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done; echo x > x.txt')
    eventually(lambda: world.json("status", task)["phrase"] == "running")
    moved = world.root / "elsewhere" / "repo"
    moved.parent.mkdir()
    world.repo.rename(moved)
    world.repo = moved
    (world.marks / "go").touch()
    world.run("wait", task, status=70)
    assert "at its new place" in world.out("result", task)
    world.out("fetch", task)
    assert world.git("show", f"shunter/local/task/{task}:x.txt") == "x"


@pytest.mark.parametrize("has_commit", [True, False])
def test_another_repository_at_the_place_of_the_checkout_gets_nothing(world, has_commit):
    task = world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done; echo x > x.txt')
    eventually(lambda: world.json("status", task)["phrase"] == "running")
    moved = world.repo.rename(world.root / "moved")
    world.repo.mkdir()
    world.git("init", "-q")
    if has_commit:
        world.git("-c", "user.name=U", "-c", "user.email=u@e", "commit", "-q", "--allow-empty", "-m", "x")
    (world.marks / "go").touch()
    world.run("wait", task, status=70, cwd=moved)
    assert "at its new place" in world.out("result", task)
    assert world.git("for-each-ref", "refs/remotes") == ""
    world.run("fetch", task, cwd=moved)
    assert world.git("show", f"shunter/local/task/{task}:x.txt", cwd=moved) == "x"
    assert world.git("for-each-ref", "refs/remotes") == ""


@pytest.mark.parametrize("words", [(), ("--wip",)])
def test_a_checkout_at_its_new_place_is_known_by_what_it_holds(world, words):
    (world.repo / "a.txt").write_text("one and more\n")
    task = world.submit("echo x > x.txt", *words)
    world.wait(task, status=0)
    ref, start = f"shunter/local/task/{task}", world.git("rev-parse", "HEAD")
    world.git("update-ref", "-d", f"refs/remotes/{ref}")
    moved = world.repo.rename(world.root / "another-name")
    stranger = world.root / "stranger"
    stranger.mkdir()
    told = world.run("fetch", task, status=70, cwd=stranger).stderr.decode()
    assert "is gone, and" in told and "not inside a git repository" in told
    for name in (world.root / "repo", stranger):  # of which one stands at the old place
        name.mkdir(exist_ok=True)
        world.git("init", "-q", cwd=name)
        world.git("-c", "user.name=U", "-c", "user.email=u@e", "commit", "-q", "--allow-empty", "-m", "x", cwd=name)
    world.out("fetch", task, cwd=moved)
    assert world.git("show", f"{ref}:x.txt", cwd=moved) == "x"
    assert world.git("for-each-ref", "refs/remotes", cwd=world.root / "repo") == ""
    (world.root / "repo").rename(world.root / "elsewhere")
    told = world.run("fetch", task, status=70, cwd=stranger).stderr.decode()
    assert f"{stranger} is not it: it lacks commit {start}" in told and start[:12] in told.partition("lacks")[2]
    assert "x.txt" in world.out("diff", "--stat", task, cwd=moved)
    clone = world.root / "clone"
    world.git("clone", "-q", "--no-local", str(moved), str(clone), cwd=world.root)
    told = world.run("diff", task, status=70, cwd=clone).stderr.decode()
    assert f"{clone} does not have the result" in told and f"shunter fetch {task}" in told
    world.out("fetch", task, cwd=clone)
    assert "x.txt" in world.out("diff", "--stat", task, cwd=clone)


def test_records_hold_no_values_and_nobody_else_may_look(world):
    agent = world.root / "agent"
    agent.write_text('#!/bin/sh\ntest -n "$KEY" && touch x\n')
    agent.chmod(0o755)
    lines = ("[agents.keyed]", 'adapter = "exec"', f'command = ["{agent}"]', 'env = {KEY = "very-secret-value"}')
    world.configure(more="\n".join(lines))
    done = world.run("submit", "--wait", "-a", "keyed", "go")
    assert b"very-secret-value" not in done.stdout + world.run("config", "show").stdout
    assert not world.files_with(b"very-secret-value")
    for root in (world.data, world.state):
        assert root.stat().st_mode & 0o077 == 0, root


def test_an_agent_over_acp_that_is_missing_is_told_likewise(world):
    done = world.run("submit", "--wait", "--json", "-a", "acp:no-such-agent --acp", "go", status=69)
    record = json.loads(done.stdout)
    assert (record["phrase"], record["turn"]["error_code"]) == ("launch_failed", "AGENT_MISSING")
    assert "no-such-agent: No such file or directory" in record["turn"]["error_text"]


@pytest.mark.parametrize(("words", "answer"), [((), "no"), (("--permission", "unattended"), "yes")])
def test_what_an_agent_over_acp_asks_is_answered_as_it_was_wished(world, words, answer):
    agent = Path(__file__).parents[1] / "tools" / "acp_agent.py"
    kinds = {"yes": "allow_once", "no": "reject_once"}
    options = [{"optionId": word, "name": word, "kind": kind} for word, kind in kinds.items()]
    call = {"toolCallId": "t", "kind": "edit", "locations": [{"path": "/etc/x"}]}
    asked = {"sessionId": "s-1", "toolCall": call, "options": options}
    steps = [{"request": ["session/request_permission", asked]}, {"result": {"stopReason": "end_turn"}}]
    script = json.dumps({"session/prompt": steps})
    name = shlex.join(("acp:" + sys.executable, str(agent), script, str(world.marks / "heard")))
    record = world.json("submit", "-a", name, *words, "--wait", "go", status=None)
    assert record["turn"]["outcome"]["permission"] == "unattended", "nothing enforces it"
    heard = [json.loads(line) for line in (world.marks / "heard").read_text().splitlines() if line.startswith("{")]
    answers = [each["result"]["outcome"]["optionId"] for each in heard if "outcome" in (each.get("result") or {})]
    assert answers == [answer], heard


def test_a_turn_that_adds_nothing_is_not_done_with_what_came_before(world):
    _, first = ended(world, "if [ -e x.txt ]; then echo I could not; else echo x > x.txt; fi")
    again = world.json("say", first["id"], "--wait", "once more", status=None)
    assert (first["phrase"], again["phrase"]) == ("done", "no_changes")
    assert again["turn"]["outcome"]["publication"]["commits"] == 1


def test_a_result_that_cannot_be_read_is_not_done(world):
    block = world.root / "block"
    block.write_text('```shunter-result\n{"status": "blocked", "summary": 1}\n```\n')
    code, record = ended(world, f"echo x > x.txt; cat {block}")
    assert (code, record["phrase"]) == (0, "unknown")
    assert "cannot be read" in record["turn"]["outcome"]["evidence"]


@pytest.mark.parametrize("name", ["acp:", "acp:'gemini --acp"])
def test_a_command_line_that_is_none_is_refused_at_once(world, name):
    refused = world.run("submit", "-a", name, "go", status=None)
    assert refused.returncode and b"AGENT_OPTION" in refused.stderr


def test_a_task_over_acp_goes_on_in_its_session(world):
    """From the command line alone, without an entry in the configuration."""
    agent = Path(__file__).parents[1] / "tools" / "acp_agent.py"
    script = {"session/prompt": [{"request": ["fs/read_text_file", {}]}, {"result": {"stopReason": "end_turn"}}]}
    name = shlex.join(("acp:" + sys.executable, str(agent), json.dumps(script), str(world.marks / "heard")))
    first = world.json("submit", "-a", name, "--wait", "first", status=None)
    assert (first["phrase"], first["session_id"]) == ("no_changes", "s-1")
    world.json("say", first["id"], "--wait", "second", status=None)
    heard = [json.loads(line) for line in (world.marks / "heard").read_text().splitlines() if line.startswith("{")]
    methods = [each["method"] for each in heard if "method" in each]
    assert methods == ["initialize", "session/new", "session/prompt", "initialize", "session/load", "session/prompt"]
    assert "fs/read_text_file: not found" in world.out("logs", first["id"])


def test_a_program_that_is_missing_names_the_remedy(world):
    world.run("submit", "--wait", "-a", "exec:no-such-agent", "go", status=69)
    assert "shunter host check" in world.out("result", world.json("list")[0]["id"])


@pytest.mark.parametrize(
    ("script", "word", "phrase"),
    [
        ("mkdir n; cd n; git init -q; echo IMPORTANT > x; git add .; git commit -qm n", "'n'", "unknown"),
        (
            "git init -q app; cd app; echo 1 > f; git add .; git commit -qm 1; cd ..; git add .; git commit -qm 2",
            "app",
            "done",
        ),
        ("rm a.txt; git init -q a.txt; cd a.txt; git commit -q --allow-empty -m 1", "a.txt", "done"),
    ],
)
def test_a_repository_inside_the_workspace_is_told_and_never_deleted(world, script, word, phrase):
    (world.home / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@example.org\n")
    _, record = ended(world, script, "--close-on", "any")
    assert record["phrase"] == phrase, record
    assert "only in the workspace" in world.out("result", record["id"])
    assert word in world.out("result", record["id"])
    assert b"RESULT_UNDELIVERED" in world.run("close", record["id"], status=64).stderr
    assert (world.data / "tasks" / record["id"] / "workspace").exists()
    world.out("close", "--discard", record["id"])


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_files_that_git_was_told_not_to_look_at_are_part_of_the_result(world, flag):
    _, record = ended(world, f"echo changed > a.txt; git update-index {flag} a.txt")
    assert record["phrase"] == "done"
    assert world.git("show", f"{record['ref']}:a.txt") == "changed"


def test_commits_come_home_although_a_file_became_a_repository(world):
    become = "rm a.txt; git init -q a.txt; cd a.txt; git commit -q --allow-empty -m 1"
    (world.home / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@example.org\n")
    _, record = ended(world, f"echo precious > p; git add p; git commit -qm p; {become}")
    assert world.git("show", f"{record['ref']}:p") == "precious"


def test_the_version_of_an_agent_stands_with_its_turn_and_an_untried_one_is_told(world):
    program = world.root / "bin" / "codex"
    program.parent.mkdir()
    events = [{"type": "thread.started", "thread_id": "t-1"}, {"type": "turn.started"}, {"type": "turn.completed"}]
    program.write_text(
        '#!/bin/sh\n[ "$1" != --version ] || { echo codex-cli 0.99.0; exit; }\n'
        '[ "$1" != login ] || exit 0\necho x > x.txt\n' + "".join(f"echo '{json.dumps(event)}'\n" for event in events)
    )
    program.chmod(0o755)
    profile = f"PATH={program.parent}:$PATH\nexport PATH\n"
    for name in (".profile", ".bash_profile"):
        (world.home / name).write_text(profile)
    found = {each["what"]: each["found"] for each in world.json("host", "check", "local")}
    assert "codex-cli 0.99.0" in found["agent codex"] and "older than what was tried" in found["agent codex"]
    record = world.json("submit", "-a", "codex", "--wait", "go")
    assert (record["phrase"], record["turn"]["outcome"]["agent_version"]) == ("unknown", "codex-cli 0.99.0")
    assert "version    codex-cli 0.99.0" in world.out("result", record["id"])
    told = [event["reason"] for event in world.json("status", record["id"])["events"] if event["kind"] == "version"]
    assert len(told) == 1 and "codex-cli 0.99.0: it is older" in told[0]


ASKS = json.dumps({"status": "needs_input", "summary": "s", "questions": ["which?"]})


def told(world, output: str, *, limits: str = "") -> dict:
    """A turn of a command with fields that changes a file and prints this."""
    (world.root / "output").write_text(output)
    fields = '{ session = "sid", message = "item.text", prompt = "ask", error = "error.message" }'
    command = json.dumps(["sh", "-c", f"echo x > x.txt; cat {world.root}/output"])
    world.configure(limits=limits, more=f'[agents.teller]\nadapter = "exec"\ncommand = {command}\nfields = {fields}\n')
    return world.json("submit", "-a", "teller", "--wait", "go", status=None)


def line_of(text: str) -> str:
    return json.dumps({"item": {"text": text}}) + "\n"


@pytest.mark.parametrize(
    ("output", "phrase"),
    [
        (f'{{"sid": "s-1"}}\n```shunter-result\n{ASKS}\n```\n', "needs_input"),
        (line_of(f"```shunter-result\n{ASKS}\n```") + line_of("bye"), "needs_input"),
        (line_of(f"```shunter-result\n{ASKS}") + line_of("```"), "unknown"),
        ('{"ask": "Left or right?"}\n', "needs_input"),
        ('{"item": {"text": "begin"}}\n{"error": {"message": {"code": 7}}}\n', "failed"),
    ],
)
def test_what_a_command_with_fields_told_last_decides(world, output, phrase):
    record = told(world, output)
    assert record["phrase"] == phrase, record["turn"]["outcome"]
    if output.startswith('{"sid"'):
        assert ASKS in world.out("logs", record["id"])


@pytest.mark.parametrize("as_events", [True, False])
def test_a_result_that_the_output_cap_cut_is_not_done(world, as_events):
    block = f"```shunter-result\n{json.dumps({**json.loads(ASKS), 'summary': 's' * 20_000})}\n```\n"
    noise = line_of("x" * 100) * 10_000
    record = told(world, noise + (line_of(block) if as_events else block), limits="output_cap_mb = 1\ntail_kb = 4")
    end = record["turn"]["outcome"]
    assert (record["phrase"], end["structured"]) == ("unknown", False)
    kept = len(world.run("logs", "--raw", record["id"]).stdout)
    assert end["stdout_bytes"] - end["stdout_lost_bytes"] == kept
    assert f"note       {end['stdout_lost_bytes']} bytes of its output are not kept" in world.out(
        "result", record["id"]
    )


@pytest.mark.parametrize(
    ("write", "phrase"),
    [
        ("true", "done"),
        ('printf "%s" "$2" > "$1"', "needs_input"),
        ('printf "{" > "$1"', "unknown"),
        ('head -c 40000000 /dev/zero > "$1"', "unknown"),
        ('mkdir "$1"', "unknown"),
        ('ln -s /dev/zero "$1"', "unknown"),
        ('mkfifo "$1"', "unknown"),
    ],
)
def test_a_result_file_that_cannot_be_read_is_not_done(world, write, phrase):
    command = json.dumps(["sh", "-c", f"echo x > x.txt; {write}", "sh", "{last_message}", ASKS])
    world.configure(more=f'[agents.writer]\nadapter = "exec"\ncommand = {command}\n')
    record = world.json("submit", "-a", "writer", "--wait", "go", status=None)
    assert record["phrase"] == phrase, record["turn"]["outcome"]
    if phrase == "unknown":
        assert "its structured result cannot be read" in record["turn"]["outcome"]["evidence"]
