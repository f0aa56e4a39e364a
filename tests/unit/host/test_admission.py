"""Admission never gives out more than there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.host.admission import MEMORY_RESERVE_MB, decide_admission
from shunter.wire.messages import LeaseAsk


def an_ask(slots=1, memory_mb=0, capacity_slots=2, capacity_memory_mb=None):
    return LeaseAsk("t-1-a", "t-1", "t", slots, memory_mb, capacity_slots, capacity_memory_mb)


@pytest.mark.parametrize(
    ("ask", "used", "reserved", "available", "reason"),
    [
        (an_ask(), 1, 0, None, None),
        (an_ask(), 2, 0, None, "needs 1 slot, 0 of 2 free"),
        (an_ask(slots=2), 1, 0, None, "needs 2 slots, 1 of 2 free"),
        (an_ask(capacity_slots=1), 3, 0, None, "needs 1 slot, 0 of 1 free"),
        (an_ask(memory_mb=100, capacity_memory_mb=1000), 0, 900, None, None),
        (
            an_ask(memory_mb=101, capacity_memory_mb=1000),
            0,
            900,
            None,
            "needs 101 MB, 100 MB of the budget of 1000 MB left",
        ),
        (an_ask(memory_mb=100), 0, 10**6, 100 + MEMORY_RESERVE_MB, None),
        (
            an_ask(memory_mb=101),
            0,
            0,
            100 + MEMORY_RESERVE_MB,
            "needs 101 MB, 100 MB really free (512 MB stay for the host)",
        ),
        (an_ask(memory_mb=101), 0, 0, 7, "needs 101 MB, 0 MB really free (512 MB stay for the host)"),
        (an_ask(memory_mb=0, capacity_memory_mb=10), 0, 10, 1, None),
    ],
)
def test_the_answer_and_its_reason(ask, used, reserved, available, reason):
    assert decide_admission(ask, used_slots=used, reserved_memory_mb=reserved, available_memory_mb=available) == reason


@given(
    asks=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4000)), max_size=30),
    slots=st.integers(0, 8),
    memory_mb=st.none() | st.integers(0, 16000),
)
def test_sums_never_exceed_the_capacity(asks, slots, memory_mb):
    used = reserved = 0
    for want_slots, want_mb in asks:
        ask = an_ask(want_slots, want_mb, slots, memory_mb)
        if decide_admission(ask, used_slots=used, reserved_memory_mb=reserved, available_memory_mb=None) is None:
            used, reserved = used + want_slots, reserved + want_mb
    assert used <= slots
    assert memory_mb is None or reserved <= memory_mb
