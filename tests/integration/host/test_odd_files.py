"""What an agent puts where files of ours are read or written: pipes, links and directories hang nothing (S7)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from shunter.host.logs import find_pieces, read_lines
from shunter.host.pipes import find_pipes
from shunter.host.signals import read_supervisor

from .world import World, code_of, until

PYTHON = (sys.executable, "-I", "-S", "-c")
JOB = "import os; job = os.path.dirname(os.environ['TMPDIR'])\n"
REPLACE = JOB + "path = job + '/' + {name!r}\nif os.path.exists(path): os.unlink(path)\nos.mkfifo(path)\n"


def replaced_by_pipe(name: str) -> tuple[str, ...]:
    return (*PYTHON, REPLACE.format(name=name) + "open('new.txt', 'w').write('new')\nprint('said')")


@pytest.mark.parametrize(
    "name", ["last_message", "start", "prompt", "session", "stderr@9", "times.stderr", "stdout@90", "turn_base"]
)
def test_a_pipe_in_the_job_directory_holds_up_no_end(world: World, name: str) -> None:
    attempt, status = world.run(*replaced_by_pipe(name))
    assert status.end is not None
    expected = "unknown" if name == "last_message" else "done"
    assert (status.end.outcome, status.end.error_code) == (expected, None)
    assert world.read_log(attempt) == (b"said\n", [])
    assert world.published(attempt, "new.txt") == "new"


def test_a_link_for_the_last_message_shows_no_other_file(world: World, outside: Path) -> None:
    (outside / "other").write_text("of somebody else")
    code = JOB + f"os.symlink({str(outside / 'other')!r}, job + '/last_message')"
    end = world.run(*PYTHON, code)[1].end
    assert end is not None and "somebody" not in end.summary + end.evidence


def test_a_pipe_for_the_next_piece_of_the_output_makes_a_gap(world: World) -> None:
    """The supervisor itself would wait there, and neither time limit nor cancel would end the turn."""
    head = 1 << 20  # the cap
    code = (
        JOB
        + f"os.mkfifo(job + '/stdout@{head}')\nos.write(1, b'x' * {head})\n"
        + "import time\nos.write(1, b'lost'); time.sleep(0.3); os.write(1, b'kept')\n"
    )
    attempt, status = world.run(*PYTHON, code)
    assert status.end is not None and status.end.outcome == "unknown"
    data, gaps = world.read_log(attempt)
    assert data == b"x" * head + b"kept"
    assert gaps == [(head + 4, 4)]


@pytest.mark.parametrize("name", [".gitignore", "d/.gitignore", ".gitattributes", "d/.gitattributes", ".gitmodules"])
def test_a_pipe_that_git_would_read_holds_up_neither_this_turn_nor_the_next(world: World, name: str) -> None:
    code = f"import os\nos.mkdir('d'); open('d/new.txt', 'w').write('new')\nos.mkfifo({name!r})\n"
    attempt, status = world.run(*PYTHON, code)
    assert status.end is not None
    assert (status.end.outcome, status.end.error_code) == ("done", None)
    assert world.published(attempt, "d/new.txt") == "new"
    again = ("sh", "-c", "echo second > d/second.txt")
    attempt, status = world.run(*again, task_id=attempt.spec.task_id, number=2)
    assert status.end is not None and status.end.outcome == "done"
    assert world.published(attempt, "d/second.txt") == "second"
    assert (world.workspace(attempt) / name).is_fifo()


@pytest.mark.parametrize("name", ["shunter-new-ref", "objects/info/commit-graph", "objects/info/alternates", "index"])
def test_a_pipe_in_the_git_directory_holds_up_no_end(world: World, name: str) -> None:
    path = ".git/" + name
    code = f"import os\nif os.path.exists({path!r}): os.unlink({path!r})\nos.mkfifo({path!r})\nopen('new', 'w').close()"
    attempt, status = world.run(*PYTHON, code)
    assert status.end is not None
    assert (status.end.outcome, status.end.error_code) == ("done", None)
    assert world.published(attempt, "new") == ""


def test_a_pipe_for_the_record_of_a_workspace_refuses_the_next_turn(world: World) -> None:
    code = "import os\nos.unlink('.git/shunter-workspace'); os.mkfifo('.git/shunter-workspace')"
    attempt, _ = world.run(*PYTHON, code)
    further = world.prepare("true", task_id=attempt.spec.task_id, number=2)
    assert code_of(lambda: world.accept(further)).code == "WORKTREE_INCONSISTENT"


def test_recovery_starts_where_its_log_is_a_pipe(world: World) -> None:
    code = REPLACE.format(name="supervisor.log") + "import time\nprint('up', flush=True); time.sleep(600)"
    attempt = world.start(*PYTHON, code)
    until((world.job(attempt) / "supervisor.log").is_fifo, what="the pipe")
    os.kill(world.supervisor(attempt)["pid"], 9)
    end = world.wait(attempt).end
    assert end is not None and end.outcome == "lost"


def test_pieces_are_regular_files_with_a_number(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_bytes(b"head\n")
    (tmp_path / "stdout@²").write_bytes(b"no number")
    (tmp_path / "stdout@5").symlink_to("stdout@5")
    (tmp_path / "stdout@6").mkdir()
    os.mkfifo(tmp_path / "stdout@7")
    path = str(tmp_path / "stdout")
    assert [piece.offset for piece in find_pieces(path)] == [0]
    assert list(read_lines(path, total=5)) == [b"head"]


@pytest.mark.parametrize("text", ["[" * 50_000, "[1]", "{}", "nonsense", '{"pid": "1"}'])
def test_what_no_supervisor_writes_is_no_identity(world: World, text: str) -> None:
    attempt, _ = world.run("true")
    for path in (world.job(attempt) / "supervisor", Path(world.layout.signal(attempt.id, "launched"))):
        path.write_text(text)
    assert read_supervisor(world.layout, attempt.id) is None


def test_pipes_are_found_at_any_depth_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a" / ".git").mkdir(parents=True)
    os.mkfifo(tmp_path / "a" / ".git" / "HEAD")
    (tmp_path / "link").symlink_to(tmp_path / "a" / ".git" / "HEAD")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    assert find_pipes(str(tmp_path)) == [str(tmp_path / "a" / ".git" / "HEAD")]
