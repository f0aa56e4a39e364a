"""The skill for orchestrating agents: its commands are run as they stand there, in order, in one shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from e2e_world import SHUNTER, World

SKILL = Path(__file__).parents[2] / "skills" / "shunter" / "SKILL.md"


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.close()


def commands() -> str:
    return "\n".join(re.findall(r"^ *```sh\n(.*?)^ *```$", SKILL.read_text(), re.MULTILINE | re.DOTALL))


def test_the_loop_runs_as_it_is_written(world):
    agent = ["sh", "-c", "cat >> said.txt; echo done"]
    world.configure(more=f'[agents.codex]\nadapter = "exec"\ncommand = {json.dumps(agent)}\n')
    (world.repo / "task.md").write_text("make the empty list work\n")
    env = {**world.env, "PATH": f"{Path(SHUNTER).parent}{os.pathsep}{world.env['PATH']}", "GIT_CONFIG_NOSYSTEM": "1"}
    ran = subprocess.run(
        ["bash", "-euxc", commands()], cwd=world.repo, env=env, capture_output=True, timeout=120, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert (world.repo / "said.txt").read_text() == "make the empty list work\n"
    (task,) = world.json("list", "--all")
    assert (task["phrase"], task["turn"]["number"]) == ("done (closed)", 2)
    assert json.loads((world.repo / "result.json").read_text())["phrase"] == "done"


def test_every_command_and_option_that_it_names_exists(world):
    text = SKILL.read_text()
    named = set(re.findall(r"shunter ([a-z]+)((?: [^`\n|]*)?)", text))
    for name in {name for name, _ in named} - {"skill"}:
        told = world.out(name, "--help")
        for option in {word for each, rest in named if each == name for word in re.findall(r"--[a-z-]+", rest)}:
            assert option in told, (name, option)
