"""Real agent CLIs for tests: installed once into the cache, run with an environment of their own and no real login."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.scripted_model import ScriptedModel

INSTALL = Path(__file__).parent / "agents" / "install"
INSTALL_LIMIT_S = 200
RUN_LIMIT_S = 60


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shunter-tests"


@dataclass(frozen=True)
class AgentClis:
    codex: str
    claude: str

    def codex_command(self, url: str) -> tuple[str, ...]:
        """What a configuration would say: `[agents.codex] command = [...]`; the key stands in SCRIPTED_KEY."""
        provider = (
            f'{{name="scripted",base_url="{url}",wire_api="responses",env_key="SCRIPTED_KEY",'
            "request_max_retries=1,stream_max_retries=1}"
        )
        options = ("-c", 'model_provider="scripted"', "-c", f"model_providers.scripted={provider}", "-m", "scripted-1")
        return (self.codex, *options)

    def claude_environment(self, url: str) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-fake", "CLAUDE_CODE_MAX_RETRIES": "1"}


@dataclass(frozen=True)
class Ran:
    stdout: bytes
    stderr: bytes
    returncode: int


@dataclass(frozen=True)
class AgentHome:
    """A home directory for agents, outside of /tmp because Codex turns its sandbox off for a home in there."""

    path: Path

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.path),
            "CODEX_HOME": str(self.path / "codex"),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": str(self.path / "tmp"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "SCRIPTED_KEY": "sk-fake",
        }

    def run(self, argv: tuple[str, ...], *, prompt: str, cwd: Path, env: dict[str, str]) -> Ran:
        """Run one agent to its end, in a session of its own that is killed when it takes too long."""
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={**self.environment(), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            stdout, stderr = process.communicate(prompt.encode(), timeout=RUN_LIMIT_S)
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return Ran(stdout, stderr, process.returncode)


@pytest.fixture(scope="session")
def agent_clis() -> AgentClis:
    """Paths of the pinned CLIs. Skips when they cannot be had, unless SHUNTER_REQUIRE_AGENTS says that they must."""
    try:
        ran = subprocess.run(
            [INSTALL], capture_output=True, text=True, timeout=INSTALL_LIMIT_S, stdin=subprocess.DEVNULL
        )
        reason = ran.stderr.strip()[-500:] if ran.returncode else ""
    except subprocess.TimeoutExpired:
        reason = f"{INSTALL} took more than {INSTALL_LIMIT_S} s"
    if reason:
        (pytest.fail if os.environ.get("SHUNTER_REQUIRE_AGENTS") else pytest.skip)(reason)
    programs = Path(ran.stdout.strip())
    return AgentClis(codex=str(programs / "codex"), claude=str(programs / "claude"))


@pytest.fixture
def agent_home() -> Iterator[AgentHome]:
    above = cache_directory() / "homes"
    above.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=above))
    (path / "codex").mkdir()
    (path / "tmp").mkdir()
    yield AgentHome(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def scripted_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model
