"""The demonstration: a small real project, a home of its own, three tasks of the `exec` agent side by side.

Everything stands below one directory, so that nothing of the user's is touched and removing it removes all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .home import Home
from .submit import SubmitAsk, submit_task

AGENT = '''\
"""A stand-in for a coding agent: reads the prompt, thinks a little, changes one file, commits."""

import pathlib
import subprocess
import sys
import time

prompt = sys.stdin.read().strip()
name, _, job = prompt.partition(": ")
print(f"working on {name}: {job}", flush=True)
for number in range(1, 5):
    time.sleep(0.4)
    print(f"step {number} of 4", flush=True)
path = pathlib.Path(name)
path.write_text(path.read_text() + f"\\n# {job}\\n")
subprocess.run(["git", "commit", "-qam", job], check=True)
summary = f"{name}: {job}, committed"
print("```shunter-result")
print('{"status": "done", "summary": "%s", "questions": [], "files_changed": ["%s"]}' % (summary, name))
print("```")
'''
FILES = {
    "app.py": 'def greet(name):\n    return f"hello {name}"\n',
    "util.py": "def add(a, b):\n    return a + b\n",
    "notes.md": "# notes\n",
}
PROMPTS = ("app.py: say how greet is meant", "util.py: explain add", "notes.md: write down what was decided")
CONFIG = '[[hosts]]\nname = "local"\nslots = 3\n'


@dataclass(frozen=True, slots=True)
class Demo:
    root: Path
    project: Path
    task_ids: tuple[str, ...]


def start_demo() -> Demo:
    """Make the directory, point this process's XDG variables at it, submit three tasks."""
    root = Path(tempfile.mkdtemp(prefix="shunter-demo-"))
    project = root / "project"
    make_project(project)
    for name, place in (("CONFIG", "config"), ("STATE", "state"), ("DATA", "data"), ("CACHE", "cache")):
        os.environ[f"XDG_{name}_HOME"] = str(root / place)
    os.environ.pop("SHUNTER_CONFIG", None)
    (root / "config" / "shunter").mkdir(parents=True)
    (root / "config" / "shunter" / "config.toml").write_text(CONFIG)
    agent = root / "agent.py"
    agent.write_text(AGENT)
    ids = []
    for prompt in PROMPTS:
        given = {"agent": f"exec:{sys.executable} {agent}"}
        ids.append(submit_task(Home(), SubmitAsk(prompt.encode(), given, directory=project)).task.id)
    return Demo(root, project, tuple(ids))


def make_project(project: Path) -> None:
    project.mkdir()
    for name, text in FILES.items():
        (project / name).write_text(text)
    identity = ("-c", "user.name=Demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-q", "-m", "a small project")):
        subprocess.run(["git", "-C", str(project), "-c", "core.hooksPath=/dev/null", *words], check=True)
