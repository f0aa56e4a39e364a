"""Real agent CLIs for tests: installed once into the cache, run with an environment of their own and no real login."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tools.scripted_model import ScriptedModel

INSTALL = Path(__file__).parent / "agents" / "install"
INSTALL_LIMIT_S = 200
RUN_LIMIT_S = 60


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shunter-tests"


@dataclass(frozen=True)
class AgentClis:
    """The installed programs, and what a configuration would say so that each asks the scripted model at `url`."""

    programs: Path

    def command(self, agent: str, url: str) -> tuple[str, ...]:
        """`[agents.NAME] command = [...]`; the key stands in SCRIPTED_KEY."""
        program = str(self.programs / agent)
        if agent == "codex":
            provider = (
                f'{{name="scripted",base_url="{url}",wire_api="responses",env_key="SCRIPTED_KEY",'
                "request_max_retries=1,stream_max_retries=1}"
            )
            options = ("-c", 'model_provider="scripted"', "-c", f"model_providers.scripted={provider}")
            return (program, *options, "-m", "scripted-1")
        options = {"gemini": ("-m", "gemini-2.5-pro"), "qwen": ("--auth-type", "openai")}.get(agent, ())
        return (program, *options)

    def acp_command(self, agent: str, url: str) -> tuple[str, ...]:
        """The same agent over the Agent Client Protocol, asking for permission as it does by itself."""
        options = {"opencode": ("acp",), "gemini": ("--acp", "--skip-trust")}.get(agent, ("--acp",))
        return (*self.command(agent, url), *options)

    def environment(self, agent: str, url: str, home: AgentHome) -> dict[str, str]:
        """`[agents.NAME] env = {...}`: where the agent keeps its things, its provider, and no attempt to go out."""
        own = {"HOME": str(home.path), "GIT_CONFIG_NOSYSTEM": "1", "SCRIPTED_KEY": "sk-fake"}
        return (
            own
            | {
                "codex": lambda: {"CODEX_HOME": str(home.path / "codex")},
                "claude": lambda: {
                    "CLAUDE_CONFIG_DIR": str(home.path / "claude"),
                    "ANTHROPIC_BASE_URL": url,
                    "ANTHROPIC_API_KEY": "sk-ant-fake",
                    "CLAUDE_CODE_MAX_RETRIES": "1",
                },
                "opencode": lambda: {
                    "OPENCODE_CONFIG_CONTENT": json.dumps(opencode_settings(url)),
                    "OPENCODE_DISABLE_MODELS_FETCH": "1",
                    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                },
                "gemini": lambda: {"GEMINI_API_KEY": "sk-fake", "GOOGLE_GEMINI_BASE_URL": url},
                "qwen": lambda: {
                    "OPENAI_API_KEY": "sk-fake",
                    "OPENAI_BASE_URL": f"{url}/v1",
                    "OPENAI_MODEL": "scripted-1",
                },
                "copilot": lambda: {
                    "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
                    "COPILOT_PROVIDER_API_KEY": "sk-fake",
                    "COPILOT_MODEL": "scripted-1",
                    "COPILOT_OFFLINE": "true",
                },
            }[agent]()
        )


def opencode_settings(url: str) -> dict[str, Any]:
    model = {
        "name": "S",
        "tool_call": True,
        "limit": {"context": 200000, "output": 8000},
        "cost": {"input": 1, "output": 2},
    }
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "{env:SCRIPTED_KEY}"},
        "models": {"scripted-1": model},
    }
    return {"model": "scripted/scripted-1", "small_model": "scripted/scripted-1", "provider": {"scripted": provider}}


GEMINI_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"enableAutoUpdate": False},
}


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
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": str(self.path / "tmp"),
            "GIT_CONFIG_NOSYSTEM": "1",
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
    return AgentClis(Path(ran.stdout.strip()))


@pytest.fixture
def agent_home() -> Iterator[AgentHome]:
    above = cache_directory() / "homes"
    above.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=above))
    for directory in ("codex", "tmp", ".gemini"):
        (path / directory).mkdir()
    (path / ".gemini" / "settings.json").write_text(json.dumps(GEMINI_SETTINGS))
    yield AgentHome(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def scripted_model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model
