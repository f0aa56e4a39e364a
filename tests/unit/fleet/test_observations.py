"""What was seen of the hosts is kept by many writers at once, and a broken file is only lost advice."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from shunter.fleet.observations import (
    Observation,
    failed,
    forget_observation,
    load_observations,
    record_observation,
)
from shunter.fleet.places import Places, find_places
from shunter.wire.errors import ShunterError


@pytest.fixture
def places(tmp_path) -> Places:
    return find_places({"HOME": str(tmp_path)})


def seen(name: str, at: float = 1.0) -> Observation:
    return Observation(name, "as", asked_at=at, answered_at=at)


def test_answers_that_come_at_once_are_all_kept(places):
    names = [f"host-{number}" for number in range(12)]
    with ThreadPoolExecutor(len(names)) as pool:
        for _ in range(20):
            list(pool.map(lambda name: record_observation(places, seen(name)), names))
            assert sorted(load_observations(places)) == sorted(names)
            for name in names:
                forget_observation(places, name)
            assert load_observations(places) == {}


def test_one_broken_file_loses_that_host_alone(places):
    for name in ("one", "two"):
        record_observation(places, seen(name))
    (places.state_dir / "hosts" / "one.json").write_text('{"name": "one"')
    assert list(load_observations(places)) == ["two"]


def test_a_failure_keeps_what_was_known_and_its_age():
    before = seen("one", at=5.0)
    after = failed(before, "one", "as", ShunterError("HOST_UNREACHABLE", "away"), now=9.0)
    assert (after.answered_at, after.asked_at, after.failures, after.error_code) == (5.0, 9.0, 1, "HOST_UNREACHABLE")
    another = failed(before, "one", "another way", ShunterError("HOST_UNREACHABLE", "away"), now=9.0)
    assert another.answered_at is None
    assert dataclasses.replace(after, asked_at=0.0).is_fresh(1.0)
