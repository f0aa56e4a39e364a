"""When an end is called `oom`: only on the kernel's word, and only for a SIGKILL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shunter.agents.contract import Outcome
from shunter.host.ending import as_oom
from shunter.host.signals import Exited
from shunter.host.supervisor import oom_kills


def ended(kind: str = "crashed", **facts: Any) -> Outcome:
    plain = {"reason": "exit", "errno": 0, "exit_code": None, "signal": 9, "background": 0, "stdout_bytes": 0}
    exited = Exited(**{**plain, "stderr_bytes": 0, "cpu_s": None, "peak_rss_kib": None, "at": 1.0, **facts})
    return as_oom(Outcome(kind, "killed"), exited)


@pytest.mark.parametrize(
    "facts",
    [{"oom_group": 1}, {"oom_group": 0, "oom_machine": 2}, {"signal": None, "exit_code": 137, "oom_machine": 1}],
)
def test_a_kill_with_the_kernels_word(facts: dict[str, Any]) -> None:
    outcome = ended(**facts)
    assert outcome.kind == "oom" and outcome.evidence.startswith("killed: ") and "want of memory" in outcome.evidence


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"oom_group": 0, "oom_machine": 0},
        {"oom_group": 1, "signal": 15},
        {"oom_group": 1, "signal": None, "exit_code": 1},
        {"oom_group": 1, "kind": "limit"},
        {"oom_group": 1, "kind": "done"},
    ],
)
def test_anything_else_stays_what_it_is(facts: dict[str, Any]) -> None:
    assert ended(**facts) == Outcome(facts.get("kind", "crashed"), "killed")


def test_what_the_kernel_counts(tmp_path: Path) -> None:
    counters = tmp_path / "memory.events"
    counters.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
    assert oom_kills(str(counters)) == 2
    counters.write_text("oom_kill many\n")
    assert oom_kills(str(counters)) is None
    assert oom_kills(str(tmp_path / "absent")) is None
