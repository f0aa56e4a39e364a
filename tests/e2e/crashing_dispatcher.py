"""A dispatcher that kills itself (SIGKILL) at its Nth boundary, or at the first of that name.

argv: N or the name, a file to write the boundary's name to.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from shunter.dispatch.main import run_dispatcher

guard = threading.Lock()
wanted = None if sys.argv[1].isdigit() else sys.argv[1]
left = [1 if wanted else int(sys.argv[1])]


def on_boundary(name: str) -> None:
    with guard:
        left[0] -= wanted in (None, name)
        if left[0] == 0:
            Path(sys.argv[2]).write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)


print("starting", flush=True)
status = run_dispatcher(ready=lambda: print("ready", flush=True), on_boundary=on_boundary)
os._exit(status)
