"""Threads of one session that take the same things."""

from __future__ import annotations

import io
from pathlib import Path

from shunter.host.layout import Layout
from shunter.host.serve import Session


class TakenMeanwhile(list):  # type: ignore[type-arg]
    """Looks as if it held something, which another thread takes first."""

    def __bool__(self) -> bool:
        return True


def test_a_connection_that_another_thread_took_is_opened_anew(tmp_path: Path) -> None:
    layout = Layout(str(tmp_path))
    layout.make()
    session = Session(layout, "nonce", io.BytesIO(), io.BytesIO())
    session.idle = TakenMeanwhile()
    with session.a_host() as host:
        assert host.ledger.is_current()
    session.idle.pop().ledger.close()
