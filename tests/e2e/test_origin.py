"""Bases from origin and results to origin, against real git servers over HTTP and ssh (T6, X20)."""

from __future__ import annotations

import shutil

import pytest
from e2e_world import eventually
from origin_lab import BACKEND, HttpOrigin, SshOrigin
from ssh_lab import SSHD

pytestmark = pytest.mark.timeout(120)
needs_http = pytest.mark.skipif(not BACKEND.exists(), reason="no git http-backend here")
needs_ssh = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no OpenSSH server here")

WORK = "cat > work.txt; git add work.txt; git commit -qm work"


@pytest.fixture(params=[pytest.param(HttpOrigin, marks=needs_http), pytest.param(SshOrigin, marks=needs_ssh)])
def either(request, world):
    made = request.param(world)
    made.take_in()
    yield made
    made.close()


@pytest.fixture
def http(world):
    if not BACKEND.exists():
        pytest.skip("no git http-backend here")
    made = HttpOrigin(world)
    made.take_in()
    yield made
    made.close()


def reasons(status: dict) -> list[str]:
    return [event["reason"] or "" for event in status["events"]]


class TestSource:
    def test_the_host_fetches_the_base_and_the_users_repository_stays_as_it_was(self, world, either):
        go = world.marks / "go"
        before = world.fingerprint()
        task = world.submit(f'while [ ! -e "{go}" ]; do sleep 0.05; done; {WORK}', "--source", "origin")
        assert world.fingerprint() == before
        go.touch()
        (status,) = world.wait(task, status=0)
        assert status["phrase"] == "done"
        assert "fetched from origin" in reasons(status)
        assert status["options"]["origin_url"] == either.url
        assert world.git("show", f"shunter/local/task/{task}:work.txt") == "do it"
        assert either.branches().keys() == {"main"}
        assert not [path for path in (world.state / "transfer").rglob("*.pack")], "home sent or kept nothing itself"
