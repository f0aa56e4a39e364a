"""The process by which a proof sees whether what is started on a host outlives the session."""

from __future__ import annotations

import pytest

from shunter.fleet.client import CALL_LIMIT_S, HELLO_LIMIT_S
from shunter.host import proof

from .world import is_alive, until


def test_one_that_nobody_asks_for_again_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "SLEEP_S", 1)
    sleeper = proof.start_sleeper()
    assert is_alive(sleeper.pid)
    until(lambda: not is_alive(sleeper.pid), what="the sleeper's end")


def test_it_outlives_every_wait_of_the_proof_that_started_it() -> None:
    """Else a slow connection would look like a host that ends what a session leaves behind."""
    logout, opening, question = CALL_LIMIT_S, HELLO_LIMIT_S, CALL_LIMIT_S
    assert logout + opening + question < proof.SLEEP_S < 2 * (logout + opening + question)
