"""What an agent gets and what it means when it cannot be started (S4, T9)."""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from pathlib import Path

import pytest
from gone import take_away

from .test_stopping import hold_launches
from .world import World, code_of

PYTHON = (sys.executable, "-I", "-S", "-c")


def a_program(path: Path, text: str, mode: int) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_missing_program_is_named(world: World) -> None:
    attempt, status = world.run("no-such-agent-at-all", "--flag")
    end = status.end
    assert end is not None
    assert (end.outcome, end.reason, end.error_code) == ("launch_failed", "spawn_failed", "AGENT_MISSING")
    assert end.error_text is not None and "no-such-agent-at-all" in end.error_text
    assert end.exit_code is None and status.launched_at is None
    assert world.slots_used() == 0
    assert world.read_log(attempt) == (b"", [])


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hi\n", "#!/no/such/interpreter\n", "\x7fELF not really"])
def test_a_program_that_cannot_be_run_is_missing_too(world: World, outside: Path, text: str) -> None:
    program = a_program(outside / "agent", text, 0o644 if "echo" in text else 0o755)
    _, status = world.run(program)
    assert status.end is not None
    assert (status.end.outcome, status.end.error_code) == ("launch_failed", "AGENT_MISSING")
    assert status.end.error_text is not None and program in status.end.error_text


def test_a_program_that_may_not_be_run_counts_for_more_than_one_that_is_not_there(world: World, outside: Path) -> None:
    a_program(outside / "my-agent", "#!/bin/sh\n", 0o644)
    _, status = world.run("my-agent", env={"PATH": f"{outside}:/nowhere:/usr/bin:/bin"})
    assert status.end is not None and "Permission denied" in (status.end.error_text or "")


def test_the_path_is_the_agents(world: World, outside: Path) -> None:
    a_program(outside / "my-agent", "#!/bin/sh\necho mine\n", 0o755)
    attempt, _ = world.run("my-agent", env={"PATH": f"/nowhere:{outside}:/usr/bin:/bin"})
    assert world.read_log(attempt)[0] == b"mine\n"


def test_a_program_of_the_repository_is_found_by_its_path(world: World) -> None:
    a_program(world.repo / "agent.sh", "#!/bin/sh\npwd; echo ran > new.txt\n", 0o755)
    from .world import git

    git(world.repo, "add", ".")
    git(world.repo, "commit", "--quiet", "-m", "an agent")
    attempt, status = world.run("./agent.sh", base_oid=git(world.repo, "rev-parse", "HEAD"))
    assert status.end is not None and status.end.outcome == "done"
    assert world.read_log(attempt)[0].decode().strip() == str(world.workspace(attempt))
    assert world.published(attempt, "new.txt") == "ran"


def test_a_workspace_that_is_gone_is_told_from_a_missing_program(world: World) -> None:
    first, _ = world.run("true")
    let_go = hold_launches(world)
    second = world.start("true", task_id=first.spec.task_id, number=2)
    take_away(world.workspace(second))
    let_go()
    end = world.wait(second).end
    assert end is not None
    assert (end.outcome, end.reason, end.error_code) == ("launch_failed", "workspace_lost", "WORKTREE_INCONSISTENT")
    assert str(world.workspace(second)) in (end.error_text or "")


def test_an_attempt_without_a_program_is_refused(world: World) -> None:
    for argv in ((), ("",)):
        attempt = world.prepare(*argv)
        assert code_of(lambda attempt=attempt: world.accept(attempt)).code == "PROTOCOL"  # type: ignore[misc]
        assert world.tombstone(attempt).state == "tombstoned"


def test_there_is_no_terminal(world: World) -> None:
    script = "tty; read answer </dev/tty || echo none; ps -o tty= -p $$; cat; echo end of input"
    attempt, _ = world.run("sh", "-c", script, prompt="typed\n")
    out = world.read_log(attempt)[0].decode().splitlines()
    assert out == ["not a tty", "none", "?", "typed", "end of input"]
    assert b"/dev/tty" in world.read_log(attempt, "stderr")[0]


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "--help",
        "-",
        "@file",
        "$(touch pwned) `touch pwned` \\ \"'",
        "a\r\nb\r\n",
        "naïve Straße 日本語 🚂 \u2028",
        "lone surrogate \udce9 of a byte that was no UTF-8",
        "x" * 200_000 + "\r\n",
        "日" * 66_000,
    ],
    ids=lambda prompt: repr(prompt[:12]),
)
def test_the_prompt_arrives_byte_for_byte(world: World, prompt: str) -> None:
    code = "import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    attempt, status = world.run(sys.executable, "-I", "-c", code, prompt=prompt)
    expected = hashlib.sha256(prompt.encode("utf-8", "surrogateescape")).hexdigest()
    assert world.read_log(attempt)[0].decode().strip() == expected
    assert status.end is not None and status.end.outcome == "no_changes"


def test_no_signal_is_ignored_no_descriptor_inherited_and_the_directory_is_the_workspace(world: World) -> None:
    code = (
        "import os; print(os.getcwd()); print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4]);"
        "print([l for l in open('/proc/self/status') if l.startswith(('SigIgn', 'SigBlk'))]);"
        "print(os.getsid(0) == os.getpid() == os.getpgid(0))"
    )
    attempt, _ = world.run("sh", "-c", 'exec "$@"', "sh", sys.executable, "-I", "-S", "-c", code)
    cwd, fds, masks, leads = world.read_log(attempt)[0].decode().splitlines()
    assert cwd == str(world.workspace(attempt))
    assert fds == "[0, 1, 2, 3]"  # 3 is the directory that is read
    python_ignores = (1 << 12) | (1 << 24)  # SIGPIPE and SIGXFSZ, by itself
    of_glibc = (1 << 31) | (1 << 32)  # its own, which nobody can set; whoever started us may have left them ignored
    lines = (line.strip().split(":\t") for line in ast.literal_eval(masks))
    found = {name: int(mask, 16) & ~of_glibc for name, mask in lines}
    assert found == {"SigIgn": python_ignores, "SigBlk": 0}, masks
    assert leads == "True"


def test_the_exit_status_and_the_signal_are_the_agents_own(world: World) -> None:
    for script, code, number, outcome in (("exit 7", 7, None, "failed"), ("kill -9 $$", None, 9, "crashed")):
        _, status = world.run("sh", "-c", script)
        assert status.end is not None
        assert (status.end.exit_code, status.end.signal, status.end.outcome) == (code, number, outcome)
        assert status.end.cpu_s is not None and status.end.peak_rss_kib


def test_a_long_time_limit_is_no_fault(world: World) -> None:
    _, status = world.run("true", timeout_s=10.0**9)
    assert status.end is not None and status.end.outcome == "no_changes"


def test_the_agents_private_directory_goes_with_the_turn(world: World) -> None:
    script = 'mkdir "$TMPDIR/a" && touch "$TMPDIR/a/b" && chmod 0 "$TMPDIR/a" && echo "$TMPDIR"'
    attempt, _ = world.run("sh", "-c", script)
    tmp = world.read_log(attempt)[0].decode().strip()
    assert tmp == str(world.job(attempt) / "tmp")
    from .world import until

    until(lambda: not os.path.exists(tmp), what="the end of its directory")
