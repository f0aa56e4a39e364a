"""Reading a stream from a time on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.host.logs import log_end, offset_since
from shunter.host.output import Log, Times, spacing_s


def written(path: Path, *parts: tuple[float, bytes]) -> str:
    """A stream as the supervisor writes it, each part at its time."""
    log, times = Log(str(path / "stdout"), [1 << 20], 1 << 16), Times(str(path / "stdout"))
    for at, data in parts:
        times.note(log.seen, data, at)
        log.write(data)
    return log.path


def shown(path: str, since: float) -> bytes:
    return Path(path).read_bytes()[offset_since(path, since) :]


@pytest.mark.parametrize(
    ("since", "lines"),
    [
        (0.0, b"one\ntwo\nthree\n"),
        (100.0, b"one\ntwo\nthree\n"),
        (100.9, b"one\ntwo\nthree\n"),
        (105.0, b"two\nthree\n"),
        (110.0, b"two\nthree\n"),
        (115.0, b"three\n"),
        (120.5, b"three\n"),
        (121.5, b""),
    ],
)
def test_what_came_before_is_left_out(tmp_path: Path, since: float, lines: bytes) -> None:
    path = written(tmp_path, (100.0, b"one\n"), (110.0, b"two\n"), (120.0, b"three\n"))
    assert shown(path, since) == lines


def test_a_line_is_shown_whole_when_its_end_came_late(tmp_path: Path) -> None:
    path = written(tmp_path, (100.0, b"one\ntwo, "), (110.0, b"and "), (120.0, b"more\nthree\n"))
    assert shown(path, 115.0) == b"two, and more\nthree\n"


def test_without_times_everything_is_shown(tmp_path: Path) -> None:
    path = written(tmp_path, (100.0, b"one\n"), (110.0, b"two\n"))
    times = tmp_path / "times.stdout"
    times.write_text("torn\n0 100.000\n\xff\n4 110.0\n9", encoding="latin-1")
    assert shown(path, 105.0) == b"two\n"
    times.unlink()
    assert shown(path, 105.0) == b"one\ntwo\n"
    assert offset_since(str(tmp_path / "none"), 105.0) == 0


def test_a_clock_that_is_set_back_hides_nothing_new(tmp_path: Path) -> None:
    path = written(tmp_path, (1000.0, b"one\n"), (400.0, b"two\n"), (410.0, b"three\n"))
    assert shown(path, 405.0).endswith(b"three\n")
    assert shown(path, 412.0) == b""


def test_a_week_of_output_is_some_thousand_rows(tmp_path: Path) -> None:
    times, week_s = Times(str(tmp_path / "stdout")), 7 * 86400
    for at in range(0, week_s, 2):
        times.note(at, b"x\n", float(at))
    rows = (tmp_path / "times.stdout").read_bytes().splitlines()
    assert 2000 < len(rows) < 9000
    assert spacing_s(week_s) < 900


@given(st.lists(st.tuples(st.floats(0.0, 5.0), st.text(alphabet="ab\n", max_size=9)), max_size=9), st.floats(0.0, 60.0))
def test_nothing_that_came_since_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, parts: list, since: float
) -> None:
    at, timed = 1.0, []
    for pause_s, text in parts:
        at += pause_s
        timed.append((at, text.encode()))
    path = written(tmp_path_factory.mktemp("times"), *timed)
    offset, begin = offset_since(path, since), 0
    assert 0 <= offset <= log_end(path)
    for came_at, data in timed:
        if came_at >= since and data:
            assert offset <= begin, "the first byte that came since is shown"
            break
        begin += len(data)
