"""The version that stands in an end is that of the program which ran, or none."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, cast

import pytest

from shunter.host.layout import Layout
from shunter.host.probes import known_version
from shunter.wire.codec import encode
from shunter.wire.messages import AgentFacts, JobSpec


@pytest.fixture
def place(tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


def told(place: Path, *, checked_at: float, path: str = "bin/codex", program: str = "codex", **facts: Any) -> Any:
    known = {"codex": AgentFacts(str(place / path), "codex-cli 0.171.0", True, True, checked_at)}
    (place / "agents.json").write_text(json.dumps(encode(known)))
    spec = type("Spec", (), {"agent": "codex", "env_profile": None, "argv": (program, "exec"), **facts})
    return known_version(Layout(str(place)), cast(JobSpec, spec), f"/nowhere:{place}/bin")


def test_of_the_program_that_was_asked(place: Path) -> None:
    assert told(place, checked_at=time.time() + 1) == "codex-cli 0.171.0"
    assert told(place, checked_at=time.time() + 1, program=str(place / "bin" / "codex")) == "codex-cli 0.171.0"


def test_of_no_other_one(place: Path) -> None:
    assert told(place, checked_at=time.time() + 1, path="other/codex") is None
    assert told(place, checked_at=time.time() + 1, program="sh") is None
    assert told(place, checked_at=time.time() + 1, env_profile="work") is None


def test_of_none_that_has_changed_since(place: Path) -> None:
    assert told(place, checked_at=os.stat(place / "bin" / "codex").st_ctime - 1) is None


def test_nobody_asked_yet(place: Path) -> None:
    spec = type("Spec", (), {"agent": "codex", "env_profile": None, "argv": ("codex",)})
    assert known_version(Layout(str(place)), cast(JobSpec, spec), f"{place}/bin") is None
