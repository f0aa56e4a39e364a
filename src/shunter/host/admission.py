"""Whether a host grants a lease: slots, reserved memory against a budget, and what is really free (P10, D2).

Pure. The ledger asks inside its transaction, so that the sums are true; home asks to explain. Memory that a lease has
reserved and its agent has not used yet still counts as free in what the kernel tells, so both bounds are needed.
"""

from __future__ import annotations

from typing import Optional

from ..wire.messages import LeaseAsk

MEMORY_RESERVE_MB = 512  # stays free for the host itself


def decide_admission(
    ask: LeaseAsk, *, used_slots: int, reserved_memory_mb: int, available_memory_mb: Optional[int]
) -> Optional[str]:
    """None: granted. Otherwise the reason, in words for people.

    `available_memory_mb` is MemAvailable, None where the host cannot measure it: then only the reservations bind. An
    ask without memory reserves nothing and is not held back by memory.
    """
    free_slots = ask.capacity_slots - used_slots
    if ask.slots > free_slots:
        return f"needs {_slots(ask.slots)}, {max(0, free_slots)} of {ask.capacity_slots} free"
    if ask.memory_mb <= 0:
        return None
    if ask.capacity_memory_mb is not None:
        free_mb = ask.capacity_memory_mb - reserved_memory_mb
        if ask.memory_mb > free_mb:
            return f"needs {ask.memory_mb} MB, {max(0, free_mb)} MB of the budget of {ask.capacity_memory_mb} MB left"
    if available_memory_mb is not None and ask.memory_mb > available_memory_mb - MEMORY_RESERVE_MB:
        usable_mb = max(0, available_memory_mb - MEMORY_RESERVE_MB)
        return f"needs {ask.memory_mb} MB, {usable_mb} MB really free ({MEMORY_RESERVE_MB} MB stay for the host)"
    return None


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"
