"""Bases from origin and results to origin, against real git servers over HTTP and ssh (T6, X20)."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from e2e_world import eventually, kill
from origin_lab import BACKEND, HttpOrigin, SshOrigin
from ssh_lab import SSHD, Lab

pytestmark = pytest.mark.timeout(120)
needs_http = pytest.mark.skipif(not BACKEND.exists(), reason="no git http-backend here")
needs_ssh = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here")

WORK = "cat > work.txt; git add work.txt; git commit -qm work"


@pytest.fixture(params=[pytest.param(HttpOrigin, marks=needs_http), pytest.param(SshOrigin, marks=needs_ssh)])
def either(request, world):
    made = request.param(world)
    made.take_in()
    yield made
    made.close()


@pytest.fixture
def http(world):
    if not BACKEND.exists():
        pytest.skip("no git http-backend here")
    made = HttpOrigin(world)
    made.take_in()
    yield made
    made.close()


@pytest.fixture
def ssh(world):
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("no OpenSSH server here")
    made = SshOrigin(world)
    made.take_in()
    yield made
    made.close()


def push_of(world, task: str) -> dict:
    return world.json("status", task)["push"]


def until_push(world, task: str, *states: str) -> dict:
    """The push once it is in one of the states."""
    return eventually(lambda: (push := push_of(world, task))["state"] in states and push)


def published(world, *words: str, script: str = WORK) -> str:
    """A task whose turn is over and whose branch is to go to origin."""
    task = world.submit(script, "--publish", "push", *words)
    world.wait(task, status=0)
    return task


def reasons(status: dict) -> list[str]:
    return [event["reason"] or "" for event in status["events"]]


class TestSource:
    def test_the_host_fetches_the_base_and_the_users_repository_stays_as_it_was(self, world, either):
        go = world.marks / "go"
        before = world.fingerprint()
        task = world.submit(f'while [ ! -e "{go}" ]; do sleep 0.05; done; {WORK}', "--source", "origin")
        assert world.fingerprint() == before
        go.touch()
        (status,) = world.wait(task, status=0)
        assert status["phrase"] == "done"
        assert "fetched from origin" in reasons(status)
        assert status["options"]["origin_url"] == either.url
        assert world.git("show", f"shunter/local/task/{task}:work.txt") == "do it"
        assert either.branches().keys() == {"main"}
        assert not list((world.state / "transfer").rglob("*.pack")), "home sent or kept nothing itself"

    @pytest.mark.parametrize("protocol", ["0", "2"])
    def test_a_base_that_is_no_tip_of_a_branch_comes_by_its_id(self, world, http, protocol):
        """Protocol 0 serves tips only unless it is told otherwise, so there all branches are fetched."""
        world.git("config", "--global", "protocol.version", protocol)
        base = world.git("rev-parse", "HEAD")
        http.commit("main")
        task = world.submit(WORK, "--source", "origin", "--base", base)
        (status,) = world.wait(task, status=0)
        assert (status["phrase"], status["base_oid"]) == ("done", base)
        assert "fetched from origin" in reasons(status)

    def test_what_origin_lacks_is_refused_with_the_remedy(self, world, either):
        world.git("commit", "-q", "--allow-empty", "-m", "mine alone")
        oid = world.git("rev-parse", "HEAD")
        for words in (("--source", "origin"), ("--publish", "push")):
            done = world.run("submit", "-a", "exec:true", *words, "x", status=64)
            assert b"BASE_NOT_ON_ORIGIN" in done.stderr and oid.encode() in done.stderr
            assert either.url.encode() in done.stderr and b"git push origin HEAD" in done.stderr
        # The commit before it is there, and a push of the branch puts it there.
        assert world.submit("true", "--source", "origin", "--base", "HEAD~1")
        world.git("push", "-q", "origin", "main")
        assert world.submit("true", "--source", "origin")

    def test_branches_of_origin_that_moved_on_are_looked_into(self, world, http):
        """Nobody fetched lately: what main is there now is not known here, yet it leads to the base."""
        http.commit("main", parent=http.commit("other"))
        before = world.fingerprint()
        assert world.submit("true", "--source", "origin")
        assert world.fingerprint() == before
        http.commit("anew", parent="")
        http.git("update-ref", "refs/heads/main", "anew")
        http.git("update-ref", "-d", "refs/heads/other")
        assert (
            b"BASE_NOT_ON_ORIGIN" in world.run("submit", "-a", "exec:true", "--source", "origin", "x", status=64).stderr
        )

    def test_a_base_that_vanished_before_the_host_fetches_makes_no_workspace(self, world, http):
        world.configure(slots=1, more="")
        http.take_in_again()
        world.git("checkout", "-q", "-b", "short")
        world.git("commit", "-q", "--allow-empty", "-m", "short-lived")
        world.git("push", "-q", "origin", "short")
        go = world.marks / "go"
        first = world.submit(f'while [ ! -e "{go}" ]; do sleep 0.05; done', "--base", "main")
        task = world.submit(WORK, "--source", "origin")
        http.git("update-ref", "-d", "refs/heads/short")
        http.git("reflog", "expire", "--expire=now", "--all")
        http.git("gc", "-q", "--prune=now")
        go.touch()
        world.wait(first)
        (status,) = world.wait(task, status=70)
        assert status["turn"]["error_code"] == "BASE_UNAVAILABLE"
        assert http.url in status["turn"]["error_text"] and "submit again" in status["turn"]["error_text"]
        assert not (world.data / "tasks" / task).exists()
        assert status["turn"]["attempt_number"] == 1

    def test_expired_credentials_are_told_and_not_tried_again(self, world, http):
        task = self.waiting(world, http)
        http.passwords["robot"] = "changed"
        (world.marks / "go").touch()
        (status,) = world.wait(task, status=70)
        assert status["turn"]["error_code"] == "BASE_UNAVAILABLE"
        assert "ORIGIN_AUTH" in status["turn"]["error_text"] and "git ls-remote" in status["turn"]["error_text"]
        assert status["turn"]["attempt_number"] == 1
        assert not (world.data / "tasks" / task).exists()

    def test_a_dead_server_is_asked_again_until_it_is_back(self, world, either):
        task = self.waiting(world, either)
        either.vanish()
        (world.marks / "go").touch()
        eventually(lambda: world.json("status", task)["turn"]["attempt_number"] >= 2)
        refused = [each for each in world.json("status", task)["events"] if each["kind"] == "refused"]
        assert [each["reason"].split(":")[0] for each in refused] == ["ORIGIN_UNREACHABLE"], "told once"
        assert not (world.data / "tasks" / task).exists()
        either.come_back()
        (status,) = world.wait(task, status=0)
        assert status["phrase"] == "done"

    def waiting(self, world, origin) -> str:
        """A task from a base that only origin has, behind another one that ends when the mark `go` is there."""
        world.configure(slots=1)
        origin.take_in_again()
        world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done')
        world.git("commit", "-q", "--allow-empty", "-m", "second")
        world.git("push", "-q", "origin", "main")
        return world.submit(WORK, "--source", "origin")

    def test_uncommitted_work_cannot_come_from_origin(self, world, http):
        (world.repo / "a.txt").write_text("changed\n")
        done = world.run("submit", "-a", "exec:true", "--wip", "--source", "origin", "x", status=64)
        assert b"USAGE" in done.stderr and b"--wip" in done.stderr
        assert not (world.state / "store.db").exists()

    def test_a_project_without_origin(self, world):
        done = world.run("submit", "-a", "exec:true", "--source", "origin", "x", status=64)
        assert b"ORIGIN_UNKNOWN" in done.stderr and b"git remote add origin" in done.stderr

    def test_credentials_in_the_address_stay_where_they_are(self, world, http):
        secret = "s3cret-of-robot"
        world.git("remote", "set-url", "origin", http.url.replace("://", f"://robot:{secret}@"))
        task = published(world, "--source", "origin")
        until_push(world, task, "pushed")
        http.vanish()
        done = world.run("submit", "-a", "exec:true", "--source", "origin", "x", status=69)
        assert b"ORIGIN_UNREACHABLE" in done.stderr and secret.encode() not in done.stderr
        assert world.files_with(secret.encode()) == []

    def test_a_host_that_is_not_declared_is_not_taken(self, world, http):
        world.configure()
        done = world.run("submit", "-a", "exec:true", "--source", "origin", "--host", "local", "x", status=64)
        assert b"CAPABILITY_MISSING" in done.stderr and http.capability.encode() in done.stderr
        done = world.run("submit", "-a", "exec:true", "--source", "origin", "x")
        assert b"so the task waits" in done.stderr
        task = done.stdout.decode().strip()
        told = world.out("status", task)
        assert f"it lacks {http.capability}" in told and "shunter host check local --origin URL" in told
        http.take_in_again()
        world.run("reconcile")
        assert world.wait(task, status=0)[0]["phrase"] == "no_changes"


class TestPublish:
    def test_the_result_is_on_origin_and_at_home(self, world, either):
        task = published(world)
        push = until_push(world, task, "pushed")
        home = world.git("rev-parse", f"shunter/local/task/{task}")
        assert either.branches()[f"shunter/{task}"] == home == push["pushed_oid"]
        assert (push["url"], push["branch"], push["error_code"]) == (either.url, f"shunter/{task}", None)
        assert either.git("rev-list", "--count", f"main..shunter/{task}") == "1"
        assert [each for each in reasons(world.json("status", task)) if each == home], "history has the commit"
        assert f"pushed: shunter/{task} of {either.url}" in world.out("result", task)
        assert world.run("publish", task).returncode == 0
        world.run("close", task)
        world.assert_nothing_left_over()

    def test_submit_that_waits_tells_what_came_of_the_first_try(self, world, http):
        done = world.out("submit", "-a", f"exec:sh -c '{WORK}'", "--publish", "push", "--wait", "go")
        assert "pushed: shunter/" in done
        http.writers.clear()
        done = world.run("submit", "-a", f"exec:sh -c '{WORK}'", "--publish", "push", "--wait", "go", status=70)
        assert b"refused: shunter/" in done.stdout and b"403" in done.stdout

    def test_a_branch_of_ones_own_name_from_a_base_of_origin(self, world, http):
        task = published(world, "--source", "origin", "--publish-branch", "fix/the-thing")
        until_push(world, task, "pushed")
        assert "fix/the-thing" in http.branches()

    def test_nothing_committed_is_nothing_to_publish(self, world, http):
        task = published(world, script="true")
        assert push_of(world, task)["state"] == "nothing"
        assert "no commits, so nothing goes to" in world.out("result", task)
        assert http.branches().keys() == {"main"}
        world.run("close", task)

    def test_uncommitted_work_is_no_base(self, world, http):
        (world.repo / "a.txt").write_text("changed\n")
        done = world.run("submit", "-a", "exec:true", "--wip", "--publish", "push", "x", status=64)
        assert b"PUBLISH_REQUIRES_COMMITTED_BASE" in done.stderr
        assert not (world.state / "store.db").exists()

    def test_names_that_no_branch_can_have(self, world, http):
        for name in ("", "a..b", "-x", "refs/heads/x", "HEAD", "a b", "x.lock", "a~1", "x" * 300):
            words = ("--publish", "push", f"--publish-branch={name}")
            done = world.run("submit", "-a", "exec:true", *words, "x", status=64)
            assert b"BRANCH_INVALID" in done.stderr, name
        assert not (world.state / "store.db").exists()

    def test_branches_that_are_somebody_elses(self, world, http):
        http.commit("theirs/one")
        world.git("checkout", "-q", "-b", "at-work")
        for name in ("main", "at-work", "theirs/one", "theirs", "theirs/one/more"):
            words = ("--publish", "push", "--publish-branch", name)
            done = world.run("submit", "-a", "exec:true", *words, "x", status=64)
            assert b"BRANCH_TAKEN" in done.stderr, name

    def test_a_branch_belongs_to_one_open_task(self, world, http):
        words = ("--publish", "push", "--publish-branch", "mine")
        first = published(world, *words)
        until_push(world, first, "pushed")
        http.git("update-ref", "-d", "refs/heads/mine")
        done = world.run("submit", "-a", "exec:true", *words, "x", status=64)
        assert b"BRANCH_TAKEN" in done.stderr and first.encode() in done.stderr
        world.run("close", first)
        assert published(world, *words)

    def test_a_branch_name_without_a_push(self, world, http):
        done = world.run("submit", "-a", "exec:true", "--publish-branch", "b", "x", status=64)
        assert b"add --publish push" in done.stderr

    def test_an_account_that_may_only_read(self, world, http):
        http.writers.clear()
        task = published(world)
        push = until_push(world, task, "refused")
        assert (push["error_code"], push["next_try_at"]) == ("PUBLISH_REFUSED", None)
        assert "403" in push["error_text"]
        assert world.json("status", task)["phrase"] == "done (not on origin)"
        world.run("publish", task, status=70)
        http.writers.add("robot")
        world.run("publish", task, "--retry")
        assert f"shunter/{task}" in http.branches()

    def test_a_repository_that_the_account_may_not_write(self, world, ssh):
        """As over ssh with a key that may only read: git-receive-pack itself is refused."""
        ssh.host.server.write_text(
            ssh.host.server.read_text() + 'ForceCommand case "$SSH_ORIGINAL_COMMAND" in '
            '*receive-pack*) echo "ERROR: write access denied" >&2; exit 1;; esac; '
            'exec sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        task = published(world)
        push = until_push(world, task, "refused", "failed")
        assert (push["state"], push["error_code"]) == ("refused", "PUBLISH_REFUSED")
        assert "write access denied" in push["error_text"]

    def test_a_hook_that_rejects_is_quoted(self, world, either):
        either.hook("cat > /dev/null; echo 'policy: \033[31mno robots\033[0m on fridays' >&2; exit 1")
        task = published(world)
        push = until_push(world, task, "refused")
        assert push["error_code"] == "PUBLISH_REFUSED"
        assert "no robots" in push["error_text"] and "\x1b" not in push["error_text"]
        assert "pre-receive hook declined" in push["error_text"]
        assert f"shunter/{task}" not in either.branches()
        # Closing would lose the delivery, so it is said.
        done = world.run("close", task, status=64)
        assert b"RESULT_UNDELIVERED" in done.stderr and b"--retry" in done.stderr
        either.hook("cat > /dev/null")
        assert world.json("publish", task, "--retry")["push"]["state"] == "pushed"
        world.run("close", task)

    def test_an_undelivered_branch_is_given_up_in_so_many_words(self, world, http):
        http.hook("cat > /dev/null; exit 1")
        task = published(world)
        until_push(world, task, "refused")
        world.run("close", "--discard", task)
        assert push_of(world, task)["state"] == "dropped"
        assert world.ledger("SELECT state FROM outbox") == [("dropped",)]

    def test_a_branch_that_somebody_made_meanwhile_is_left_alone(self, world, either):
        go = world.marks / "go"
        task = world.submit(f'while [ ! -e "{go}" ]; do sleep 0.05; done; {WORK}', "--publish", "push")
        theirs = either.commit(f"shunter/{task}")
        go.touch()
        push = until_push(world, task, "refused")
        assert push["error_code"] == "BRANCH_TAKEN" and theirs in push["error_text"]
        assert either.branches()[f"shunter/{task}"] == theirs
        either.git("update-ref", "-d", f"refs/heads/shunter/{task}")
        world.run("publish", task, "--retry")
        assert either.branches()[f"shunter/{task}"] == push["wanted_oid"]

    def test_rewritten_history_does_not_go_out(self, world, http):
        task = published(
            world,
            script=f"git checkout -q --orphan anew; git branch -D task/$SHUNTER_TASK; "
            f"git branch -m task/$SHUNTER_TASK; {WORK}",
        )
        push = until_push(world, task, "refused")
        assert push["error_code"] == "PUBLISH_REFUSED" and "rewrote history" in push["error_text"]
        assert http.branches().keys() == {"main"}

    def test_a_dead_server_is_tried_again_with_growing_pauses(self, world, either):
        go = world.marks / "go"
        task = world.submit(f'while [ ! -e "{go}" ]; do sleep 0.05; done; {WORK}', "--publish", "push")
        either.vanish()
        go.touch()
        push = until_push(world, task, "failed")
        assert push["error_code"] == "ORIGIN_UNREACHABLE" and push["next_try_at"] is not None
        assert world.ledger("SELECT attempt_id FROM lease") == [], "a slot waits for no server"
        assert "again in" in world.out("status", task)
        second = eventually(lambda: (found := push_of(world, task))["tries"] >= 2 and found)
        assert second["next_try_at"] - second["updated_at"] > push["next_try_at"] - push["updated_at"]
        told = [event for event in world.json("status", task)["events"] if event["kind"] == "push"]
        assert [event["to_state"] for event in told] == ["pending", "failed"], "the same failure is told once"
        either.come_back()
        world.run("publish", task, "--retry")
        assert either.branches()[f"shunter/{task}"] == push["wanted_oid"]

    def test_a_server_that_comes_back_gets_it_by_itself(self, world, http):
        go = world.marks / "go"
        task = world.submit(f'while [ ! -e "{go}" ]; do sleep 0.05; done; {WORK}', "--publish", "push")
        http.vanish()
        go.touch()
        until_push(world, task, "failed")
        http.come_back()
        until_push(world, task, "pushed")

    def test_expired_credentials_need_a_person_once(self, world, http):
        go = world.marks / "go"
        task = world.submit(f'while [ ! -e "{go}" ]; do sleep 0.05; done; {WORK}', "--publish", "push")
        http.passwords["robot"] = "renewed-s3cret"
        go.touch()
        push = until_push(world, task, "failed")
        assert (push["error_code"], push["next_try_at"]) == ("ORIGIN_AUTH", None)
        assert "git ls-remote" in push["hint"]
        world.run("publish", task, "--retry", status=70)
        http.sign_in("robot")
        world.run("publish", task, "--retry")
        assert f"shunter/{task}" in http.branches()
        assert world.files_with(b"s3cret") == []

    def test_close_on_done_waits_for_origin(self, world, http):
        http.writers.clear()
        task = published(world, "--close-on", "done")
        until_push(world, task, "refused")
        assert world.json("status", task)["state"] == "open"
        http.writers.add("robot")
        world.run("publish", task, "--retry")
        eventually(lambda: world.json("status", task)["state"] == "closed")

    def test_pushes_to_one_origin_go_one_after_another(self, world, http):
        log = http.bare / "log"
        http.hook(f"echo begin >> {log}; sleep 0.3; echo end >> {log}")
        tasks = [world.submit(WORK, "--publish", "push") for _ in range(3)]
        for task in tasks:
            until_push(world, task, "pushed")
        assert log.read_text().split() == ["begin", "end"] * 3

    def test_an_origin_in_a_directory(self, world, http):
        """Its tag is origin:file; the same for a path and a file URL."""
        world.config.write_text(world.config.read_text().replace(http.capability, "origin:file"))
        world.git("remote", "set-url", "origin", f"../{http.bare.relative_to(world.root)}")
        task = published(world, "--source", "origin")
        assert until_push(world, task, "pushed")["url"] == str(http.bare)


class TestFollowUps:
    MORE = "cat >> work.txt; echo >> work.txt; git add work.txt; git commit -qm more"

    def pushed(self, world) -> str:
        task = published(world, script=self.MORE)
        until_push(world, task, "pushed")
        return task

    def follow_up(self, world, task: str, *, status: int = 0) -> str:
        """The head after one turn more."""
        world.run("say", task, "again", "--wait", status=status)
        return world.json("status", task)["head_oid"]

    def test_a_follow_up_moves_the_branch_on(self, world, http):
        task = self.pushed(world)
        head = self.follow_up(world, task)
        eventually(lambda: push_of(world, task)["pushed_oid"] == head)
        assert http.branches()[f"shunter/{task}"] == head
        assert http.git("rev-list", "--count", f"main..shunter/{task}") == "2"

    def test_a_branch_that_somebody_added_to_is_left_alone(self, world, http):
        task = self.pushed(world)
        theirs = http.commit(f"shunter/{task}", parent=f"shunter/{task}")
        self.follow_up(world, task, status=70)
        push = until_push(world, task, "refused")
        assert push["error_code"] == "BRANCH_TAKEN"
        assert http.branches()[f"shunter/{task}"] == theirs

    def test_a_branch_that_was_merged_and_deleted_is_made_anew(self, world, http):
        task = self.pushed(world)
        http.git("update-ref", "-d", f"refs/heads/shunter/{task}")
        head = self.follow_up(world, task)
        eventually(lambda: http.branches().get(f"shunter/{task}") == head)

    def test_what_was_not_delivered_goes_with_the_next_turn(self, world, http):
        go = world.marks / "go"
        task = world.submit(f'while [ ! -e "{go}" ]; do sleep 0.05; done; {self.MORE}', "--publish", "push")
        http.vanish()
        go.touch()
        until_push(world, task, "failed")
        http.come_back()
        head = self.follow_up(world, task)
        eventually(lambda: push_of(world, task)["pushed_oid"] == head)
        assert http.git("rev-list", "--count", f"main..shunter/{task}") == "2"


class TestDeath:
    @pytest.mark.parametrize("boundary", ["before push", "recording push", "after push"])
    def test_a_dispatcher_that_dies_around_a_push(self, world, http, boundary):
        log = http.bare / "log"
        http.hook(f"cat >> {log}", "post-receive")
        mark = world.root / "died-at"
        script = Path(__file__).parent / "crashing_dispatcher.py"
        argv = [sys.executable, str(script), boundary, str(mark)]
        dispatcher = subprocess.Popen(argv, env=world.env, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert dispatcher.stdout is not None
            assert [dispatcher.stdout.readline() for _ in range(2)] == [b"starting\n", b"ready\n"]
            task = world.submit(WORK, "--publish", "push")
            eventually(mark.exists)
            dispatcher.wait(timeout=30)
        finally:
            dispatcher.kill()
            dispatcher.wait()
        world.run("reconcile")
        until_push(world, task, "pushed")
        assert http.branches()[f"shunter/{task}"] == push_of(world, task)["pushed_oid"]
        assert len(log.read_text().splitlines()) == 1, "origin was written once"

    def test_a_helper_that_dies_while_origin_takes_the_branch(self, world, http):
        """The server had it and nobody heard: the next look finds it there."""
        log, go, begun = http.bare / "log", world.marks / "go", world.marks / "begun"
        http.hook(f'echo x >> "{begun}"; while [ ! -e "{go}" ]; do sleep 0.05; done')
        http.hook(f"cat >> {log}", "post-receive")
        task = world.submit(WORK, "--publish", "push")
        eventually(begun.exists)
        for pid in [*world.dispatcher_pids(), *world.helper_pids()]:
            kill(pid)
        world.run("reconcile")
        eventually(world.helper_pids)
        time.sleep(2)  # the next helper asks, and waits for the push that outlived the first one
        assert begun.read_text() == "x\n"
        go.touch()
        until_push(world, task, "pushed")
        assert begun.read_text() == "x\n" and len(log.read_text().splitlines()) == 1
        assert http.branches()[f"shunter/{task}"] == push_of(world, task)["pushed_oid"]


class TestAnotherMachine:
    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root: an account of its own")
    def test_a_host_uses_its_own_accounts_credentials(self, world, http):
        """Home is signed in as robot, the host as farm; nothing is copied from one to the other."""
        shared = Path(tempfile.mkdtemp(prefix="shunter-lab-"))
        shared.chmod(0o755)
        lab = Lab(shared / "lab")
        try:
            mini = lab.add("mini")
            http.passwords["farm"] = "s3cret-of-farm"
            http.writers = {"farm"}
            for name, text in {
                ".gitconfig": "[credential]\n\thelper = store\n",
                ".git-credentials": f"http://farm:s3cret-of-farm@127.0.0.1:{http.port}\n",
            }.items():
                path = mini.home / name
                path.write_text(text)
                path.chmod(0o600)
                shutil.chown(path, mini.user)
            words = ("--ssh-command", shlex.join(lab.ssh_command), "--tag", http.capability)
            world.run("host", "add", "mini", *words)
            assert "pushed and deleted again" in world.out("host", "check", "mini", "--origin", http.url)
            task = published(world, "--source", "origin", "--host", "mini")
            until_push(world, task, "pushed")
            assert f"shunter/{task}" in http.branches()
            assert "fetched from origin" in reasons(world.json("status", task))
            assert http.wrote == {"farm"}
        finally:
            lab.close()
            shutil.rmtree(shared, ignore_errors=True)


class TestCheck:
    def test_what_the_account_can_do_is_tried(self, world, either):
        told = world.out("host", "check", "local", "--origin", either.url)
        assert "a ref was pushed and deleted again" in told
        assert either.all_refs() == ["refs/heads/main"]

    def test_of_the_checkouts_own_origin_a_push_is_only_rehearsed(self, world, http):
        http.hook("exit 1")
        told = world.out("host", "check", "local")
        assert "came" in told and "rehearsed" in told

    def test_an_account_that_may_only_read_is_found_out(self, world, http):
        http.writers.clear()
        found = {each["what"]: each for each in world.json("host", "check", "--origin", http.url, status=69)}
        assert found["fetch from origin"]["ok"] is True
        assert found["push to origin"]["ok"] is False and found["push to origin"]["remedy"]

    def test_one_that_is_not_signed_in(self, world, http):
        http.credentials.unlink()
        found = {each["what"]: each for each in world.json("host", "check", "--origin", http.url, status=69)}
        assert "ORIGIN_AUTH" in found["fetch from origin"]["found"]
