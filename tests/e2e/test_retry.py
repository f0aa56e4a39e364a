"""What follows from a failed turn without anybody being asked: repeats, and stops with a reason that everybody sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from e2e_world import World, eventually

# Each launch does what its line of `plan` says, the last line again when there are more launches than lines.
AGENT = """
marks=$1; shift
echo "$*: $(head -n 1)" >> "$marks/launches"
step=$(sed -n "$(wc -l < "$marks/launches")p" "$marks/plan")
for word in ${step:-$(tail -n 1 "$marks/plan")}; do case $word in
  bind) echo '{"sid": "s-1"}';;
  tool) echo '{"tool": "ls"}';;
  edit) echo more >> work.txt;;
  overload) echo '{"err": "the model is overloaded"}'; exit 1;;
  auth) echo '{"err": "please log in again"}'; exit 1;;
  refuse) echo '{"err": "some new kind of refusal"}'; exit 1;;
  hold) touch "$marks/holds"; while [ ! -e "$marks/go" ]; do sleep 0.05; done;;
  well) echo '{"say": "well done"}';;
esac; done
"""


def entry(name: str, world: World) -> str:
    run = f'"sh", "{world.root}/agent.sh", "{world.marks}"'
    return (
        f'[agents.{name}]\nadapter = "exec"\ncommand = [{run}, "first"]\nresume = [{run}, "resume", "{{session_id}}"]\n'
        'fields = { session = "sid", error = "err", tool = "tool", message = "say", output_tokens = "out" }\n'
    )


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    (made.root / "agent.sh").write_text(AGENT)
    configure(made)
    yield made
    made.close()


def configure(world: World, retry: str = 'overload_pause = "0.1s"') -> None:
    world.configure(more=f"[retry]\n{retry}\n{entry('scripted', world)}\n{entry('other', world)}")


def plan(world: World, *launches: str) -> None:
    (world.marks / "plan").write_text("".join(line + "\n" for line in launches))


def launches(world: World) -> list[str]:
    path = world.marks / "launches"
    return path.read_text().splitlines() if path.exists() else []


def submit(world: World, prompt: str = "do it", *words: str, agent: str = "scripted") -> str:
    return world.out("submit", "-a", agent, *words, prompt)


def history(world: World, task: str) -> str:
    return "\n".join(event["reason"] or "" for event in world.json("status", task)["events"])


class TestOverload:
    def test_the_session_goes_on_after_two_overloads(self, world):
        plan(world, "bind tool edit overload", "overload", "edit well")
        task = submit(world)
        (shown,) = world.wait(task, status=0)
        first, second, third = launches(world)
        assert first == "first: do it"
        assert [each.partition(": ")[0] for each in (second, third)] == ["resume s-1"] * 2
        assert "go on from there" in second and "go on from there" in third
        assert [turn["outcome"]["outcome"] for turn in shown["turns"]] == ["overload", "overload", "done"]
        assert [(turn["repeat_number"], turn["repeat_limit"]) for turn in shown["turns"]] == [(0, 0), (1, 3), (2, 3)]
        assert world.git("show", f"{shown['ref']}:work.txt").splitlines() == ["more", "more"]
        assert "overloaded, repeat 2 of 3 in the same session" in history(world, task)
        world.assert_nothing_left_over()

    def test_a_message_that_did_nothing_is_sent_again(self, world):
        plan(world, "overload", "bind overload", "well edit")
        ended = world.json("submit", "-a", "scripted", "--wait", "do it")
        task = ended["id"]
        assert (ended["phrase"], ended["turn"]["number"]) == ("done", 3)
        assert launches(world) == ["first: do it", "first: do it", "resume s-1: do it"]
        assert "repeat 1 of 3 from the start" in history(world, task)

    def test_after_work_that_no_line_told_of_the_session_is_asked_to_go_on(self, world):
        plan(world, "bind edit overload", "edit well")
        (shown,) = world.wait(submit(world), status=0)
        assert "go on from there" in launches(world)[1]
        assert world.git("show", f"{shown['ref']}:work.txt").splitlines() == ["more", "more"]

    def test_what_may_have_done_something_is_not_begun_anew(self, world):
        plan(world, "edit overload")
        task = submit(world)
        (shown,) = world.wait(task, status=1)
        assert len(launches(world)) == 1
        assert shown["phrase"] == "overload"
        assert "not repeated: there is no session to go on in" in history(world, task)

    def test_it_ends_after_as_many_repeats_as_are_allowed(self, world):
        configure(world, 'overload = 2\noverload_pause = "0.1s"')
        plan(world, "bind overload")
        task = submit(world)
        (shown,) = world.wait(task, status=1)
        assert len(launches(world)) == 3
        assert shown["phrase"] == "overload"
        assert "repeat 2 of 2" in world.out("result", task)
        assert "repeat 1 of 2: stored" in world.out("status", task)
        assert "not repeated: repeat 2 of 2 was the last" in history(world, task)
        world.assert_nothing_left_over()

    def test_no_repeat_where_none_is_wanted(self, world):
        configure(world, "overload = 0")
        plan(world, "bind overload")
        assert world.run("submit", "-a", "scripted", "--wait", "do it", status=1)
        assert len(launches(world)) == 1

    def test_a_follower_goes_on_with_the_repeat(self, world):
        plan(world, "bind overload", "hold well edit")
        task = submit(world)
        logs = world.start("logs", "-f", task)
        eventually((world.marks / "holds").exists)
        (world.marks / "go").touch()
        shown = logs.communicate(timeout=30)[0].decode().splitlines()
        assert (shown[0], shown[1].partition(" at ")[0], *shown[2:]) == (
            "! the model is overloaded",
            "i repeat 1 of 3 follows",
            "well done",
        )
        assert world.out("logs", "-f", "--turn", "1", task).splitlines() == ["! the model is overloaded"]
        world.wait(task, status=0)

    def test_one_that_waits_is_shown_and_can_be_cancelled(self, world):
        configure(world, 'overload_pause = "1h"')
        plan(world, "bind overload", "well")
        task = submit(world)
        eventually(lambda: world.json("status", task)["again_at"])
        shown = world.json("status", task)
        assert (shown["phrase"], shown["state"]) == ("waiting", "queued")
        assert 3500 < shown["again_at"] - shown["turns"][0]["settled_at"] < 3600 * 1.3
        for command in ("list", "result"):
            assert "(1 of 3)" in world.out(command, *([task] if command == "result" else []), status=None)
        assert "again at" in world.out("status", task)
        assert "overloaded" in world.out("logs", task)
        assert "TASK_BUSY" in world.run("say", task, "go on", status=64).stderr.decode()
        world.run("cancel", task)
        shown = world.out("result", task)
        assert "why        the model is overloaded" in shown and "its repeat was cancelled by user" in shown
        assert world.json("status", task)["state"] == "open"
        assert len(launches(world)) == 1
        world.run("say", task, "--wait", "go on")
        assert launches(world)[1:] == ["resume s-1: go on"]

    def test_closing_gives_up_one_that_waits(self, world):
        configure(world, 'overload_pause = "1h"')
        plan(world, "bind overload")
        task = submit(world)
        eventually(lambda: world.json("status", task)["again_at"])
        assert world.json("close", task)["state"] == "closed"
        eventually(lambda: not world.dispatcher_pids())
        world.assert_nothing_left_over()

    @pytest.mark.parametrize("boundary", ["before ended", "after ended", "before claimed", "recording accepted"])
    def test_each_message_is_sent_once_wherever_the_dispatcher_dies(self, world, boundary):
        plan(world, "bind overload", "well edit")
        mark = world.root / "died-at"
        script = str(Path(__file__).parent / "crashing_dispatcher.py")
        words = [sys.executable, script, boundary, str(mark)]
        with subprocess.Popen(words, env=world.env, cwd="/", stdout=subprocess.PIPE) as dispatcher:
            assert dispatcher.stdout is not None
            assert [dispatcher.stdout.readline() for _ in range(2)] == [b"starting\n", b"ready\n"]
            task = submit(world)
            eventually(mark.exists)
        (shown,) = world.wait(task, status=0)
        assert launches(world) == ["first: do it", "resume s-1: do it"]
        assert [turn["repeat_number"] for turn in shown["turns"]] == [0, 1]
        world.assert_nothing_left_over()

    def test_a_message_takes_the_place_of_one_that_waits(self, world):
        configure(world, 'overload_pause = "1h"')
        plan(world, "bind overload", "well edit")
        task = submit(world)
        eventually(lambda: world.json("status", task)["again_at"])
        world.run("say", task, "--interrupt", "--wait", "something else")
        assert launches(world)[1:] == ["resume s-1: something else"]

    def test_it_outlives_the_dispatcher(self, world):
        configure(world, 'overload_pause = "3s"')
        plan(world, "bind overload", "well edit")
        task = submit(world)
        eventually(lambda: world.json("status", task)["again_at"])
        ((pid,),) = world.store("SELECT pid FROM leader")
        os.kill(pid, signal.SIGKILL)
        (shown,) = world.wait(task, status=0)
        assert [turn["repeat_number"] for turn in shown["turns"]] == [0, 1]
        assert len(launches(world)) == 2


class TestQuickFailures:
    def fail_thrice(self, world: World) -> None:
        for prompt in ("one", "two", "three"):
            assert world.run("submit", "-a", "scripted", "--wait", prompt, status=1)

    def test_three_in_a_row_stop_the_account_until_somebody_lets_it_go(self, world):
        plan(world, "bind refuse", "bind refuse", "bind refuse", "well edit")
        self.fail_thrice(world)
        done = world.run("submit", "-a", "scripted", "four")
        task = done.stdout.decode().strip()
        words = (
            "scripted on local is stopped: 3 turns in a row failed without doing anything; last: failed: some new kind"
        )
        assert words in done.stderr.decode()
        assert words in world.out("list")
        assert words in world.out("status", task)
        assert words in world.out("hosts")
        assert words in world.json("hosts")[0]["stopped"][0]
        (reason,) = world.json("status", task)["rejected"]
        assert reason["code"] == "ACCOUNT_STOPPED"
        assert world.json("submit", "-a", "exec:true", "--wait", "another account")["phrase"] == "no_changes"
        plan(world, "well edit")
        assert world.run("submit", "-a", "other", "--wait", "another account")
        assert world.json("status", task)["phrase"] == "waiting"
        told = world.run("wait", task, "--timeout", "1s", status=70).stderr.decode()
        assert told.count(words) == 1
        refused = world.run("submit", "-a", "scripted", "--no-wait", "five", status=75).stderr.decode()
        assert "CAPACITY_BUSY" in refused and words in refused
        assert len(world.json("list")) == 6
        assert len(launches(world)) == 4
        world.run("host", "enable", "local")
        world.wait(task, status=0)
        assert "is stopped" not in world.out("hosts")

    def test_after_a_pause_one_task_tries_it(self, world):
        configure(world, 'quick_pause = "2s"')
        plan(world, "refuse", "refuse", "refuse", "hold well edit", "well edit")
        self.fail_thrice(world)
        first, second = submit(world, "four"), submit(world, "five")
        eventually((world.marks / "holds").exists)
        assert world.json("status", second)["phrase"] == "waiting"
        assert "one task tries it now" in world.out("status", second)
        (world.marks / "go").touch()
        world.wait(first, second, status=0)

    def test_a_turn_that_did_something_says_that_the_account_works(self, world):
        plan(world, "refuse", "refuse", "tool refuse", "refuse", "refuse", "well edit")
        for prompt in range(5):
            assert world.run("submit", "-a", "scripted", "--wait", str(prompt), status=1)
        assert world.run("submit", "-a", "scripted", "--wait", "six")

    def test_a_session_stops_while_its_account_works_and_a_fresh_one_goes_on(self, world):
        plan(world, "bind tool refuse", "refuse", "refuse", "well edit", "refuse", "well edit")
        task = submit(world)
        world.wait(task)
        for message in ("one", "two"):
            world.run("say", task, message, "--wait", status=1)
        world.run("submit", "-a", "scripted", "--wait", "another task")
        world.run("say", task, "three", "--wait", status=1)
        told = world.run("say", task, "four", status=64).stderr.decode()
        assert "SESSION_FAILING" in told and f"say --fresh {task}" in told
        assert len(world.json("status", task)["turns"]) == 4
        world.run("say", "--fresh", task, "five", "--wait")
        assert launches(world)[-2:] == ["resume s-1: three", launches(world)[-1]]
        assert launches(world)[-1].startswith("first: This continues earlier work")


class TestAuth:
    def test_a_login_that_fails_stops_the_account_and_no_other(self, world):
        plan(world, "bind auth", "well edit")
        task = submit(world)
        world.wait(task, status=1)
        waiting = submit(world, "later")
        assert "scripted on local is stopped: its login failed: auth: please log in again" in world.out("list")
        assert world.run("submit", "-a", "other", "--wait", "go")
        assert world.json("status", waiting)["phrase"] == "waiting"
        assert len(launches(world)) == 2
        checked = world.out("host", "check", "local")
        assert "account scripted" in checked and "gets tasks again" in checked
        world.wait(waiting, status=0)

    def test_tasks_go_to_another_host_where_the_account_works(self, world):
        with world.config.open("a") as config:
            config.write(f'[[hosts]]\nname = "second"\ndata_root = "{world.root}/second"\n')
        plan(world, "auth", "well edit")
        failed = world.json("submit", "-a", "scripted", "--host", "local", "--wait", "go", status=1)
        assert failed["phrase"] == "auth"
        assert world.json("submit", "-a", "scripted", "--wait", "go")["host"] == "second"
        pinned = world.run("submit", "-a", "scripted", "--host", "local", "go")
        assert "scripted on local is stopped" in pinned.stderr.decode()
        rejected = world.json("status", pinned.stdout.decode().strip())["rejected"]
        assert [(each["host"], each["code"]) for each in rejected] == [
            ("local", "ACCOUNT_STOPPED"),
            ("second", "PINNED"),
        ]

    def test_a_check_that_finds_nobody_signed_in_lets_nothing_go(self, world):
        signed_in = world.marks / "signed-in"
        program = world.root / "bin" / "codex"
        program.parent.mkdir()
        failed = json.dumps({"type": "turn.failed", "error": {"message": "unexpected status 401 Unauthorized"}})
        program.write_text(
            '#!/bin/sh\n[ "$1" != --version ] || exec echo codex-cli 0.171.0\n'
            f"[ \"$1\" != login ] || exec test -e {signed_in}\necho '{failed}'; exit 1\n"
        )
        program.chmod(0o755)
        for name in (".profile", ".bash_profile"):
            (world.home / name).write_text(f"PATH={program.parent}:$PATH\nexport PATH\n")
        assert world.json("submit", "-a", "codex", "--wait", "go", status=1)["phrase"] == "auth"
        assert "stopped: nobody is signed in" in world.out("host", "check")
        assert "codex on local is stopped" in world.out("hosts")
        signed_in.touch()
        assert "gets tasks again" in world.out("host", "check")
        assert "is stopped" not in world.out("hosts")
