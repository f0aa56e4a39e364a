"""Named pipes in a workspace. Git reads .gitignore, .gitattributes and its own files without looking at what they are,
and at a pipe it would wait for a writer for ever.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from typing import Iterator, List

PATIENCE_S = 2.0  # most work on a workspace is over by then, and nobody had to look for pipes
AGAIN_S = 0.02


@contextlib.contextmanager
def unheld_by_pipes(workspace: str) -> Iterator[None]:
    """No reader waits at a pipe of the workspace for long: it gets a writer that writes nothing, hence an empty file.

    For when no process of the task is left, so that no pipe comes into being.
    """
    over = threading.Event()
    thread = threading.Thread(target=_serve_pipes, args=(workspace, over), daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the account may have no further thread: then the pipes go
        for pipe in find_pipes(workspace):
            os.unlink(pipe)
    try:
        yield
    finally:
        over.set()


def _serve_pipes(workspace: str, over: threading.Event) -> None:
    if over.wait(PATIENCE_S):
        return
    pipes = find_pipes(workspace)
    while pipes and not over.wait(AGAIN_S):
        for pipe in pipes:
            with contextlib.suppress(OSError):
                os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))


def find_pipes(directory: str) -> List[str]:
    """Every named pipe below, in the git directory too; links are not followed."""
    found = []
    waiting = [directory]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    with contextlib.suppress(OSError):
                        if stat.S_ISFIFO(entry.stat(follow_symlinks=False).st_mode):
                            found.append(entry.path)
    return found
