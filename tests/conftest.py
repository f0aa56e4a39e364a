"""Fixtures of the whole suite: `world` is home and host of one test, `pool` a home with hosts reached by ssh."""

from __future__ import annotations

import os

import pytest
from e2e_world import World

pytest_plugins = ["agents_fixtures"]


def pytest_configure(config: pytest.Config) -> None:
    for name in [name for name in os.environ if name.startswith(("GIT_", "SHUNTER_")) and "REQUIRE" not in name]:
        if name != "SHUNTER_TEST_HELPER_PYTHON":
            del os.environ[name]


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture
def pool(tmp_path):
    from pool_world import Pool  # home alone: it needs a newer Python than a host

    made = Pool(tmp_path)
    yield made
    made.close()
