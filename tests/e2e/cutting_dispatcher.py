"""A dispatcher that stands still when a turn comes to a step for the first time, until it is told to go on.

argv: a directory. Before STEP it makes the file `before STEP` there and waits until somebody removes that.
"""

import os
import sys
import time
from pathlib import Path

from shunter.dispatch.main import run_dispatcher

reached: set[str] = set()


def on_boundary(name: str) -> None:
    if name.startswith("before ") and name not in ("before waiting", *reached):
        reached.add(name)
        mark = Path(sys.argv[1], name)
        mark.touch()
        while mark.exists():
            time.sleep(0.01)


print("starting", flush=True)
status = run_dispatcher(ready=lambda: print("ready", flush=True), on_boundary=on_boundary)
os._exit(status)
