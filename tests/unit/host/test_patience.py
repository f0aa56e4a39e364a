from __future__ import annotations

import errno
from pathlib import Path

import pytest

from shunter.host.patience import GONE_LIMIT_S, LONGEST_PAUSE_S, Patience, may_pass


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, pause_s: float) -> None:
        self.pauses.append(pause_s)
        self.now += pause_s


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data" / "run").mkdir(parents=True)
    (tmp_path / "data" / "host_id").write_text("one\n")
    return tmp_path / "data"


def patient(root: Path) -> tuple[Patience, Clock]:
    clock = Clock()
    return Patience(str(root), clock=lambda: clock.now, sleep=clock.sleep), clock


def waits_until_over(patience: Patience, limit: int = 1000) -> int:
    return next((count for count in range(limit) if not patience.wait()), limit)


def test_a_data_root_that_stands_is_waited_for_without_end_and_ever_more_slowly(root: Path) -> None:
    patience, clock = patient(root)
    assert waits_until_over(patience) == 1000
    assert clock.pauses == sorted(clock.pauses) and clock.pauses[-1] == LONGEST_PAUSE_S


@pytest.mark.parametrize("how", ["gone", "another"])
def test_one_that_is_gone_or_another_is_given_up(root: Path, how: str) -> None:
    patience, clock = patient(root)
    root.rename(root.parent / "aside")
    if how == "another":
        root.mkdir()
        (root / "host_id").write_text("two\n")
    assert not patience.stands() and not patience.is_usable()
    assert waits_until_over(patience) < 1000
    assert GONE_LIMIT_S <= clock.now < GONE_LIMIT_S + 2 * LONGEST_PAUSE_S


def test_one_that_came_back_has_all_its_time_again(root: Path) -> None:
    patience, clock = patient(root)
    aside = root.parent / "aside"
    for _ in range(3):
        root.rename(aside)
        while clock.now - patience.gone_since < GONE_LIMIT_S - LONGEST_PAUSE_S or patience.gone_since < 0:
            assert patience.wait()
        aside.rename(root)
        assert patience.wait() and patience.is_usable()


def test_one_that_never_stood_is_none(tmp_path: Path) -> None:
    patience, _ = patient(tmp_path / "nowhere")
    assert not patience.stands()
    assert waits_until_over(patience) < 1000


def test_one_that_is_away_at_first_is_taken_as_it_comes(root: Path) -> None:
    aside = root.rename(root.parent / "aside")
    patience, _ = patient(root)
    assert patience.wait() and not patience.stands()
    aside.rename(root)
    assert patience.stands()
    (root / "host_id").write_text("two\n")
    assert not patience.stands()


def test_which_errors_may_pass() -> None:
    passing = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.ENOENT, errno.EMFILE)
    assert all(may_pass(OSError(number, "")) for number in passing)
    assert not any(may_pass(OSError(number, "")) for number in (errno.EISDIR, errno.EACCES, errno.EEXIST))
