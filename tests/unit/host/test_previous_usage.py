from __future__ import annotations

import json
from typing import Any, cast

from shunter.host.ending import _previous_usage
from shunter.host.ledger import Ledger
from shunter.wire.codec import dumps
from shunter.wire.messages import End, JobSpec, Usage


class Attempts:
    """A ledger's answer for one task, oldest first."""

    def __init__(self, *ends: End | None) -> None:
        self.rows = [{"attempt_id": f"t-{n}-a", "end": dumps(end) if end else None} for n, end in enumerate(ends, 1)]

    def attempts_of(self, task_id: str) -> list[dict[str, Any]]:
        return self.rows


def previous(*ends: End | None) -> int | None:
    spec = cast(JobSpec, type("Spec", (), {"task_id": "t", "attempt_id": f"t-{len(ends)}-a"}))
    usage = _previous_usage(cast(Ledger, Attempts(*ends)), spec)
    return usage.input_tokens if usage else None


def told(tokens: int) -> End:
    return End("done", "", session_usage=Usage(input_tokens=tokens))


SILENT = End("lost", "", reason="supervisor_died")


def test_what_a_session_had_used_is_what_its_last_turn_that_told_said() -> None:
    assert previous(None) is None
    assert previous(SILENT, None) is None
    assert previous(told(10), told(25), None) == 25
    assert previous(told(10), SILENT, SILENT, None) == 10


def test_a_turn_does_not_come_before_itself() -> None:
    assert previous(told(10), told(25)) == 10
    assert json.loads(dumps(SILENT))["session_usage"] is None
