"""Submitting: any prompt, any repository, refusals before anything exists, a repository that stays as it was."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time

import pytest
from e2e_world import SHUNTER, eventually

HASH = 'sha256sum > "{marks}/hash"; touch x'


@pytest.mark.parametrize(
    "prompt",
    [
        b"-rf --help",
        b"a\r\nb\tc\\n 'quoted' \"$(touch /tmp/pwned)\" `id`",
        "Grüße 日本語 \N{RIGHT-TO-LEFT OVERRIDE}".encode(),
        b"/clear",
        b"word " * 40_000,  # 200 KB
    ],
)
def test_the_exact_bytes_of_a_prompt_reach_the_agent(world, prompt):
    (world.root / "prompt").write_bytes(prompt)
    world.run(
        "submit", "-a", f"exec:sh -c '{HASH.format(marks=world.marks)}'", "-f", str(world.root / "prompt"), "--wait"
    )
    assert (world.marks / "hash").read_text().split()[0] == hashlib.sha256(prompt).hexdigest()


@pytest.mark.parametrize(
    ("prompt", "word"),
    [(b"", "empty"), (b" \n\t", "empty"), (b"a\0b", "NUL"), (b"\xff\xfe", "UTF-8"), (b"x" * 600_000, "limit")],
)
def test_a_prompt_that_cannot_be_taken_is_refused_before_anything_exists(world, prompt, word):
    done = world.run("submit", "-a", "exec:cat", "-f", "-", stdin=prompt, status=64)
    assert b"PROMPT_INVALID" in done.stderr
    assert word.encode() in done.stderr
    assert not world.state.exists()
    assert not world.data.exists()


def test_a_prompt_with_a_leading_dash_goes_after_the_double_dash(world):
    assert world.run("submit", "-a", "exec:cat", "--wait", "--", "--help me").returncode == 0


def test_submit_returns_at_once_and_the_repository_stays_as_it_was(world):
    (world.repo / "untracked.txt").write_text("mine")
    (world.repo / "a.txt").write_text("changed\n")
    before = world.fingerprint()
    started = time.monotonic()
    done = world.run("submit", "-a", "exec:sh -c 'sleep 1; echo x > new.txt'", "go")
    assert time.monotonic() - started < 30
    assert b"2 uncommitted changes" in done.stderr or b"uncommitted" in done.stderr
    assert world.fingerprint() == before
    task = done.stdout.decode().strip()
    (status,) = world.wait(task, status=0)
    assert status["ref"] == f"refs/remotes/shunter/local/task/{task}"
    ref = world.repo / ".git" / status["ref"]
    assert ref.exists()
    ref.unlink()
    for directory in ("task", "local", "shunter"):
        (ref.parent if directory == "task" else ref.parent.parent if directory == "local" else ref.parents[2]).rmdir()
    remotes = world.repo / ".git" / "refs" / "remotes"
    if remotes.exists() and not any(remotes.iterdir()):
        remotes.rmdir()
    objects = {path for path in (world.repo / ".git" / "objects").rglob("*") if path.is_file()}
    assert objects, "objects may have come"
    assert world.git("show", f"{status['head_oid']}:a.txt") == "one", "without --wip the base is the commit"


def test_wip_takes_the_working_tree_along(world):
    (world.repo / "a.txt").write_text("changed\n")
    (world.repo / "new.txt").write_text("chosen\n")
    (world.repo / "other.txt").write_text("left out\n")
    done = world.run(
        "submit", "--wip", "--include", "new.txt", "-a", "exec:sh -c 'cat a.txt new.txt; ls; touch y'", "--wait", "go"
    )
    task = done.stdout.decode().split()[0]
    assert world.out("logs", task).splitlines() == ["changed", "chosen", "a.txt", "new.txt"]
    assert b"other.txt" in done.stderr


def test_outside_of_a_repository_and_before_the_first_commit(world):
    outside = world.root / "outside"
    outside.mkdir()
    done = world.run(
        "submit", "-a", "exec:cat", "x", cwd=outside, status=64, env={"GIT_CEILING_DIRECTORIES": str(world.root)}
    )
    assert b"NOT_A_REPOSITORY" in done.stderr
    world.git("init", "-q", cwd=outside)
    done = world.run("submit", "-a", "exec:cat", "x", cwd=outside, status=64)
    assert b"UNBORN_HEAD" in done.stderr
    assert not world.state.exists()


def test_the_base_is_pinned_and_never_resolved_again(world):
    world.configure(slots=1)
    blocker = world.submit(f'while [ ! -e "{world.marks}/go" ]; do sleep 0.05; done')
    base = world.git("rev-parse", "HEAD")
    task = world.submit("git rev-parse HEAD; touch z")
    (world.repo / "a.txt").write_text("later\n")
    world.git("commit", "-qam", "later")
    (world.marks / "go").touch()
    world.wait(blocker, task)
    assert world.out("logs", task) == base


def test_a_linked_worktree_and_a_subdirectory_work(world):
    world.git("worktree", "add", "-q", str(world.root / "linked"), "-b", "side")
    (world.root / "linked" / "sub").mkdir()
    done = world.run("submit", "-a", "exec:touch made", "--wait", "x", cwd=world.root / "linked" / "sub")
    task = done.stdout.decode().split()[0]
    assert world.git("ls-tree", "--name-only", f"shunter/local/task/{task}").split() == ["a.txt", "made"]


def test_hostile_git_settings_of_the_user_reach_nothing_of_ours(world):
    hooks = world.root / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "pre-commit", "commit-msg", "pre-push", "pre-receive", "reference-transaction"):
        (hooks / name).write_text(f'#!/bin/sh\necho {name} >> "{world.marks}/hooks"\nexit 1\n')
        (hooks / name).chmod(0o755)
    (world.home / ".gitconfig").write_text(
        f"[core]\n\thooksPath = {hooks}\n[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = false\n"
        f'[url "/nowhere"]\n\tinsteadOf = /\n[init]\n\ttemplateDir = {hooks}\n'
    )
    env = {
        "GIT_DIR": "/nowhere",
        "GIT_INDEX_FILE": "/nowhere",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "a.b",
        "GIT_CONFIG_VALUE_0": "c",
    }
    done = world.run("submit", "-a", "exec:touch made", "--wait", "x", env=env, status=None)
    assert done.returncode == 0, done.stderr
    assert not (world.marks / "hooks").exists()


def test_no_wait_is_refused_before_anything_exists(world):
    world.configure(slots=1)
    task = world.submit("sleep 60")
    eventually(lambda: world.json("status", task)["phrase"] == "running")
    before = sorted(path.name for path in (world.state / "prompts").iterdir())
    done = world.run("submit", "--no-wait", "-a", "exec:cat", "x", status=75)
    assert b"CAPACITY_BUSY" in done.stderr
    assert len(world.json("list")) == 1
    assert sorted(path.name for path in (world.state / "prompts").iterdir()) == before
    world.out("cancel", task)


@pytest.mark.parametrize("words", [(), ("--wip",)])
def test_a_checkout_that_is_gone_before_the_base_was_sent_is_waited_for(world, words):
    (world.repo / "a.txt").write_text("changed\n")
    with_host = world.config.read_text()
    world.config.write_text(with_host.replace("slots", "enabled = false\nslots"))
    task = world.submit("echo x > x.txt", *words)
    aside = world.repo.rename(world.root / "aside")
    world.config.write_text(with_host)
    world.run("reconcile", cwd=world.root)
    eventually(lambda: "CHECKOUT_MISSING" in world.out("status", task, cwd=world.root))
    told = world.out("status", task, cwd=world.root)
    assert f"{world.repo} is no directory" in told and f"put it back, or shunter cancel {task}" in told
    told = world.run("wait", task, "--timeout", "1s", status=70, cwd=world.root).stderr.decode()
    assert f"is in {world.repo}: put it back" in told
    world.repo.mkdir()  # another one at its place has not what is needed either
    world.git("init", "-q")
    world.git("-c", "user.name=U", "-c", "user.email=u@e", "commit", "-q", "--allow-empty", "-m", "x")
    world.run("reconcile")
    eventually(lambda: "does not hold all of commit" in world.out("status", task))
    world.repo.rename(world.root / "stranger")
    aside.rename(world.repo)
    world.run("reconcile")
    (found,) = world.wait(task, status=0)
    assert found["phrase"] == "done" and world.git("show", f"{found['ref']}:x.txt") == "x"


def test_a_base_is_sent_without_the_checkout_where_its_objects_are_there(world):
    linked = world.root / "linked"
    world.git("worktree", "add", "-q", "-b", "side", str(linked))
    with_host = world.config.read_text()
    world.config.write_text(with_host.replace("slots", "enabled = false\nslots"))
    (linked / "a.txt").write_text("changed\n")
    task = world.submit("cat a.txt", "--wip", cwd=linked)
    world.git("worktree", "remove", "--force", str(linked))
    world.config.write_text(with_host)
    world.run("reconcile")
    world.wait(task)
    assert world.out("logs", task) == "changed"


def test_a_task_that_is_over_without_a_result_says_so(world):
    world.config.write_text(world.config.read_text().replace("slots", "enabled = false\nslots"))
    task = world.submit("true")
    for command in ("fetch", "diff"):
        told = world.run(command, task, status=70).stderr.decode()
        assert "no result yet" in told and f"shunter wait {task}" in told
    world.run("cancel", task)
    for command in ("fetch", "diff"):
        told = world.run(command, task, status=70).stderr.decode()
        assert "is over without a result, cancelled before any agent was started" in told and "wait" not in told


def test_names_of_every_kind_survive_the_way_there_and_back(world):
    names = [b"with space", b"-dash", b"new\nline", b"bytes\xff\xfe", "日本語".encode(), b'quote"d', b"tab\there"]
    for name in names:
        with open(os.path.join(os.fsencode(world.repo), name), "wb") as file:
            file.write(name)
    world.git("add", "-A")
    world.git("commit", "-qm", "names")
    script = 'for f in *; do printf more >> "./$f"; done'
    done = world.run("submit", "-a", f"exec:sh -c '{script}'", "--wait", "--json", "x")
    record = __import__("json").loads(done.stdout)
    assert record["turn"]["outcome"]["publication"]["files_total"] == len(names) + 1
    listed = world.git("ls-tree", "-z", "--name-only", f"shunter/local/task/{record['id']}")
    assert sorted(os.fsencode(listed).split(b"\0")[:-1]) == sorted([*names, b"a.txt"])


def test_nothing_secret_stands_in_argument_vectors_or_rows(world):
    prompt = "the secret word is xyzzy-4711"
    task = world.submit(f'touch "{world.marks}/on"; sleep 2', prompt=prompt)
    eventually((world.marks / "on").exists)
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    assert b"xyzzy-4711" not in file.read() or int(pid) == os.getpid()
            except OSError:
                pass
    rows = world.store("SELECT * FROM queue") + world.store("SELECT * FROM shapes")
    assert rows
    assert "touch" not in repr(rows)
    world.out("cancel", task)


def test_the_command_line_overrules_a_projects_base(world):
    first = world.git("rev-parse", "HEAD")
    (world.repo / "shunter.toml").write_text(f'base = "{first}"\n')
    world.git("add", ".")
    world.git("commit", "-qm", "second")
    (world.repo / "a.txt").write_text("changed\n")
    task = world.submit("cat a.txt; git rev-parse HEAD^", "--wip")
    world.wait(task)
    assert world.out("logs", task).splitlines() == ["changed", world.git("rev-parse", "HEAD")]
    task = world.submit("git rev-parse HEAD")
    world.wait(task)
    assert world.out("logs", task) == first


def test_no_wait_is_refused_by_a_host_that_takes_nothing(world):
    world.run("submit", "-a", "exec:true", "--wait", "x", status=None)
    eventually(lambda: not world.helper_pids())
    (world.data / "ledger.db").rename(world.root / "aside")
    told = world.run("submit", "--no-wait", "-a", "exec:true", "x", status=75).stderr.decode()
    assert "CAPACITY_BUSY" in told and "LEDGER_DAMAGED" in told
    assert len(world.json("list")) == 1


def test_an_include_without_the_working_tree_is_refused(world):
    done = world.run("submit", "--include", "*", "-a", "exec:true", "go", status=64)
    assert b"add --wip" in done.stderr
    assert world.json("list") == []


def test_an_include_that_fits_nothing_is_told(world):
    done = world.run("submit", "--wip", "--include", "nothing*", "-a", "exec:true", "go")
    assert b"nothing* fits no untracked file" in done.stderr


def test_a_submit_that_cannot_print_says_that_the_task_is_stored(world):
    with open("/dev/full", "wb") as full:
        child = world.start("submit", "-a", "exec:touch x", "go", stdout=full)
        err = child.communicate(timeout=60)[1]
    (task,) = [each["id"] for each in world.json("list")]
    assert child.returncode == 74
    assert task.encode() in err
    assert b"do not submit it again" in err
    world.wait(task, status=0)


def test_closed_streams_and_endless_prompts_are_no_tracebacks(world):
    for redirection in (">&-", "<&-", "2>&-"):
        words = ["sh", "-c", f"{SHUNTER} list {redirection}"]
        done = subprocess.run(words, cwd=world.repo, env=world.env, capture_output=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, b""), (redirection, done.stderr)
    done = world.run("submit", "-a", "exec:cat", "-f", "/dev/zero", status=64)
    assert b"PROMPT_INVALID" in done.stderr
    assert b"Traceback" not in world.run("list", env={"PYTHONIOENCODING": "ascii"}).stderr
