"""Follow-ups: the same workspace, host and branch; receipts; answers; what is refused, and stores nothing then."""

from __future__ import annotations

import json
import shutil

import pytest
from e2e_world import World, eventually, kill

LOG = "cat >> log.txt; echo >> log.txt; pwd >> places.txt"
QUESTIONS = [{"text": "Colour?", "options": ["red", "blue"]}, {"text": "Size?", "options": []}]


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def asking(*questions: dict) -> str:
    """An agent that writes down what it is told and asks."""
    result = {"status": "needs_input", "summary": "which?", "questions": questions, "files_changed": []}
    return f"{LOG}\ncat <<'END'\n```shunter-result\n{json.dumps(result)}\n```\nEND"


def end_slowly(world: World) -> None:
    """Long enough to do something else while an agent that ignores TERM is being ended."""
    world.config.write_text(world.config.read_text().replace("term_grace_s = 1", "term_grace_s = 8"))


def code_of(done) -> str:
    return json.loads(done.stdout.splitlines()[-1])["error"]["code"]


class TestFollowUps:
    def test_each_goes_on_in_the_same_workspace_and_branch(self, world):
        task = world.submit(LOG, prompt="first")
        world.wait(task, status=0)
        for number, words in enumerate(("second", "-third ünïcode"), 2):
            told = world.out("say", task, "--wait", "--", words)
            assert told.startswith(f"{task}  turn {number}\n") and "done" in told
        ref = world.json("result", task)["ref"]
        assert world.git("show", f"{ref}:log.txt").splitlines() == ["first", "second", "-third ünïcode"]
        assert len(set(world.git("show", f"{ref}:places.txt").splitlines())) == 1
        assert world.git("log", "--format=%an", f"main..{ref}").splitlines() == ["User"] * 3
        shown = world.json("status", task)
        assert [turn["number"] for turn in shown["turns"]] == [1, 2, 3]
        for receipt in shown["receipts"]:
            stages = [receipt[name] for name in ("stored", "delivered", "taken", "answered")]
            assert None not in stages and stages == sorted(stages)
        assert "turn 3    stored" in world.out("status", task)

    def test_a_workspace_that_is_gone_is_made_anew_from_the_result(self, world):
        task = world.submit(LOG, prompt="first")
        world.wait(task, status=0)
        workspace = world.data / "tasks" / task / "workspace"
        shutil.rmtree(workspace)
        (found,) = [world.json("say", task, "second", "--wait")]
        assert found["phrase"] == "done"
        assert world.git("show", f"{found['ref']}:log.txt").splitlines() == ["first", "second"]
        assert set(world.git("show", f"{found['ref']}:places.txt").splitlines()) == {str(workspace)}

    def test_answers_by_number_and_in_words(self, world):
        task = world.submit(asking(*QUESTIONS), prompt="first")
        world.run("wait", task)
        for wrong in (["3"], ["1=3"], ["1"], ["1=1", "1=2"], ["9=x"], ["2="], ["1=2"]):
            words = [word for each in wrong for word in ("--answer", each)]
            assert code_of(world.run("say", task, *words, "--json", status=64)) == "ANSWER_INVALID"
        words = ("--answer", "1=2", "--answer", "2=big = huge", "and be quick", "--wait")
        found = world.json("say", task, *words, status=None)
        said = world.git("show", f"{found['ref']}:log.txt")
        assert said.endswith("Question: Colour?\nAnswer: blue\n\nQuestion: Size?\nAnswer: big = huge\n\nand be quick")
        assert len(world.json("status", task)["turns"]) == 2

    def test_what_to_do_next_is_told(self, world):
        task = world.submit(asking(*QUESTIONS), prompt="first")
        world.run("wait", task)
        assert f"next       shunter say {task} --answer 1=… --answer 2=…" in world.out("result", task)
        world.run("close", task)
        assert "next " not in world.out("result", task)

    def test_the_only_question_needs_no_number(self, world):
        task = world.submit(asking(QUESTIONS[0]), prompt="first")
        world.run("wait", task)
        found = world.json("say", task, "--answer", "1", "--wait", status=None)
        assert world.git("show", f"{found['ref']}:log.txt").endswith("Question: Colour?\nAnswer: red")

    def test_of_two_at_once_one_wins_and_its_words_arrive(self, world):
        held = f'n=$(grep -c words log.txt); [ "$n" = 0 ] || until [ -e "{world.marks}/go-$n" ]; do sleep 0.05; done'
        task = world.submit(f"{LOG}; {held}", prompt="first")
        world.run("wait", task)
        for number in range(4):
            both = [world.start("say", task, f"words {number} of {name}", "--json") for name in "ab"]
            told = [child.communicate(timeout=60)[0] for child in both]
            assert sorted(child.returncode for child in both) == [0, 64], told
            (lost,) = [json.loads(words)["error"] for words in told if b'"error"' in words]
            assert lost["code"] == "TASK_BUSY"
            (world.marks / f"go-{number + 1}").touch()
            (found,) = world.wait(task, status=0)
            winner = "ab"[[child.returncode for child in both].index(0)]
            assert world.git("show", f"{found['ref']}:log.txt").splitlines()[-1] == f"words {number} of {winner}"

    def test_an_interrupted_turn_keeps_its_work(self, world):
        task = world.submit(f"{LOG}; grep -q second log.txt || sleep 60", prompt="first")
        eventually(lambda: world.json("status", task)["phrase"] == "running")
        assert code_of(world.run("say", task, "second", "--json", status=64)) == "TASK_BUSY"
        assert code_of(world.run("say", task, "--interrupt", "", "--json", status=64)) == "PROMPT_INVALID"
        assert world.json("status", task)["phrase"] == "running", "what is refused interrupts nothing"
        found = world.json("say", task, "--interrupt", "second", "--wait")
        assert world.git("show", f"{found['ref']}:log.txt").splitlines() == ["first", "second"]
        first, second = world.json("status", task)["turns"]
        assert (first["state"], second["state"]) == ("cancelled", "succeeded")

    def test_a_message_that_interrupts_keeps_the_place_of_its_turn(self, world):
        world.configure(slots=1)
        task = world.submit(
            'cat >> said; [ "$(cat said)" = first ] || exit 0; touch "$0.ran"; sleep 60', prompt="first"
        )
        eventually(lambda: world.json("status", task)["phrase"] == "running")
        other = world.submit("touch y", prompt="other")
        world.run("say", task, "--interrupt", "second")
        first, second = world.wait(task, other, status=None)
        assert first["turn"]["number"] == 2 and first["turn"]["settled_at"] <= second["turn"]["accepted_at"]

    def test_an_answer_to_a_turn_that_is_not_over_is_too_early(self, world):
        task = world.submit("sleep 60")
        eventually(lambda: world.json("status", task)["phrase"] == "running")
        assert code_of(world.run("say", task, "--answer", "1", "--json", status=64)) == "TASK_BUSY"

    def test_a_message_that_interrupts_outlives_client_and_dispatcher(self, world):
        end_slowly(world)
        stubborn = f"{LOG}; grep -q second log.txt || {{ trap '' TERM; touch {world.marks}/holds; sleep 60; }}"
        task = world.submit(stubborn, prompt="first")
        eventually((world.marks / "holds").exists)
        assert world.json("say", task, "--interrupt", "second")["number"] == 2
        shown = world.json("status", task)
        assert (shown["phrase"], len(shown["turns"]), len(shown["receipts"])) == ("cancelling", 1, 2)
        assert code_of(world.run("say", task, "--interrupt", "third", "--json", status=64)) == "TASK_BUSY"
        ((pid,),) = world.store("SELECT pid FROM leader")
        kill(pid)
        (found,) = world.wait(task, status=0)
        assert world.git("show", f"{found['ref']}:log.txt").splitlines() == ["first", "second"]

    def test_a_cancel_gives_up_the_message_that_interrupts(self, world):
        end_slowly(world)
        task = world.submit(f"{LOG}; trap '' TERM; touch {world.marks}/holds; sleep 60", prompt="first")
        eventually((world.marks / "holds").exists)
        world.run("say", task, "--interrupt", "second")
        world.run("cancel", task)
        assert len(world.json("status", task)["turns"]) == 1
        world.run("close", task, "--discard")
        assert not list((world.state / "prompts").iterdir())

    def test_a_fresh_session_is_told_what_was_said(self, world):
        task = world.submit(asking(QUESTIONS[0]), prompt="first")
        world.run("wait", task)
        found = world.json("say", task, "--fresh", "second", "--wait", status=None)
        told = world.git("show", f"{found['ref']}:log.txt")
        assert "[turn 1, asked]\nfirst\n[turn 1, ended as needs_input]\nwhich?\n" in told
        assert told.endswith("[now]\n\nsecond")


class TestConfiguredCommand:
    def test_a_session_is_found_in_its_lines_and_resumed(self, world):
        script = """printf '{"sid": "abc-%s", "say": "hello"}\\n' "$1"; cat > last.txt; echo "$@" >> calls.txt"""
        command = json.dumps(["sh", "-c", script, "agent", "first"])
        resume = json.dumps(["sh", "-c", script, "agent", "{session_id}"])
        world.configure(
            more=f'[agents.mine]\nadapter = "exec"\ncommand = {command}\nresume = {resume}\n'
            'fields = { session = "sid", message = "say" }\n'
        )
        task = world.json("submit", "-a", "mine", "first", "--wait")
        assert (task["session_id"], task["turn"]["outcome"]["summary"]) == ("abc-first", "hello")
        assert world.out("logs", task["id"]) == "hello"
        assert "session of another name" not in world.out("result", task["id"])
        for session in ("abc-abc-first", "abc-abc-abc-first"):  # it goes on in a copy, and so does what follows
            found = world.json("say", task["id"], "more", "--wait")
            assert found["session_id"] == session
            assert f"another name than it was given; follow-ups go on in {session}" in world.out("result", task["id"])
        calls = world.git("show", f"{found['ref']}:calls.txt").splitlines()
        assert calls == ["first", "abc-first", "abc-abc-first"]

    def test_a_session_that_was_never_named_cannot_be_resumed(self, world):
        world.configure(
            more='[agents.mine]\nadapter = "exec"\ncommand = ["true"]\nresume = ["true", "{session_id}"]\n'
            'fields = { session = "sid" }\n'
        )
        task = world.json("submit", "-a", "mine", "first", "--wait", status=None)["id"]
        done = world.run("say", task, "second", "--json", status=64)
        assert code_of(done) == "SESSION_UNBOUND" and b"--fresh" in done.stderr

    @pytest.mark.parametrize("sid", ["--continue", "-", "a b", "../x"])
    def test_a_name_that_could_pose_as_something_else_is_no_session(self, world, sid):
        script = f"""echo '{{"sid": "{sid}"}}'; echo '{{"err": "please log in again"}}'; exit 1"""
        world.configure(
            more=f'[agents.mine]\nadapter = "exec"\ncommand = {json.dumps(["sh", "-c", script])}\n'
            'resume = ["true", "{session_id}"]\nfields = { session = "sid", error = "err" }\n'
        )
        task = world.json("submit", "-a", "mine", "first", "--wait", status=None)
        assert (task["phrase"], task["session_id"]) == ("auth", None)
        assert f"shunter say {task['id']} --fresh …" in world.out("result", task["id"])
        assert code_of(world.run("say", task["id"], "second", "--json", status=64)) == "SESSION_UNBOUND"

    def test_a_session_that_was_never_named_begins_anew(self, world):
        world.configure(
            more='[agents.mine]\nadapter = "exec"\ncommand = ["true"]\nresume = ["true", "{session_id}"]\n'
            'fields = { session = "sid" }\n'
        )
        task = world.json("submit", "-a", "mine", "first", "--wait", status=None)["id"]
        assert world.json("say", "--fresh", task, "second", "--wait", status=None)["turn"]["number"] == 2

    def test_a_session_that_never_began_is_none(self, world):
        """Of Claude we choose the id, so it is known although the program refused its options."""
        script = "echo \"error: unknown option '--verbose'\" >&2; exit 1"
        world.configure(more=f"[agents.claude]\ncommand = {json.dumps(['sh', '-c', script])}\n")
        task = world.json("submit", "-a", "claude", "first", "--wait", status=1)
        assert (task["phrase"], bool(task["session_id"])) == ("usage_error", True)
        done = world.run("say", task["id"], "second", "--json", status=64)
        assert code_of(done) == "SESSION_UNBOUND"
        again = world.json("say", "--fresh", task["id"], "second", "--wait", status=1)
        assert again["session_id"] not in (None, task["session_id"])


class TestRefusals:
    def test_what_cannot_be_followed_up(self, world):
        task = world.submit("true", "--max-followups", "1")
        world.run("wait", task)
        assert code_of(world.run("say", task, "", "--json", status=64)) == "PROMPT_INVALID"
        assert code_of(world.run("say", task, "--answer", "1", "--json", status=64)) == "ANSWER_INVALID"
        world.run("say", task, "more", "--wait")
        assert code_of(world.run("say", task, "more", "--json", status=64)) == "FOLLOWUP_LIMIT"
        assert len(world.json("status", task)["turns"]) == 2
        world.run("close", task)
        assert code_of(world.run("say", task, "more", "--json", status=64)) == "TASK_CLOSED"
        assert code_of(world.run("say", "zzzz", "more", "--json", status=64)) == "TASK_UNKNOWN"

    def test_a_message_that_never_ran_is_no_follow_up(self, world):
        world.configure(slots=1)
        task = world.submit("true", "--max-followups", "1")
        world.run("wait", task)
        busy = world.submit("sleep 60")
        eventually(lambda: world.json("status", busy)["phrase"] == "running")
        world.run("say", task, "never mind")
        world.run("cancel", task)
        world.run("cancel", busy)
        world.run("say", task, "more", "--wait")
        assert code_of(world.run("say", task, "more", "--json", status=64)) == "FOLLOWUP_LIMIT"
        assert [turn["state"] for turn in world.json("status", task)["turns"]] == [
            "succeeded",
            "cancelled",
            "succeeded",
        ]

    def test_a_program_that_could_not_be_started_had_no_follow_up(self, world):
        world.configure(
            more='[agents.mine]\nadapter = "exec"\ncommand = ["echo", \'{"sid": "s-1"}\']\n'
            'resume = ["/missing", "{session_id}"]\nfields = { session = "sid" }\n'
        )
        task = world.json("submit", "-a", "mine", "--max-followups", "1", "first", "--wait", status=None)["id"]
        for words in ("second", "third"):
            ended = world.json("say", task, words, "--wait", status=69)
            assert (ended["phrase"], ended["turn"]["error_code"]) == ("launch_failed", "AGENT_MISSING")

    def test_why_there_is_no_session_is_told_as_it_was(self, world):
        world.configure(more='[agents.claude]\ncommand = ["/missing"]\n')
        task = world.json("submit", "-a", "claude", "first", "--wait", status=69)["id"]
        done = world.run("say", task, "second", "--json", status=64)
        assert code_of(done) == "SESSION_UNBOUND" and b"no message of task" in done.stderr

    def test_a_task_that_waits_is_not_spoken_to(self, world):
        world.configure(slots=1)
        busy = world.submit("sleep 60")
        eventually(lambda: world.json("status", busy)["phrase"] == "running")
        task = world.submit("true")
        for words in ([], ["--interrupt"]):
            done = world.run("say", task, *words, "more", "--json", status=64)
            assert code_of(done) == "TASK_BUSY" and b"not started" in done.stderr
        world.run("cancel", task, busy)
        assert code_of(world.run("say", task, "more", "--json", status=64)) == "TASK_CLOSED"
