"""A dispatcher in which the user's cancel arrives exactly at one boundary. argv: its name."""

import os
import sys
import time

from shunter.dispatch.main import run_dispatcher
from shunter.fleet.places import find_places
from shunter.store.sqlite import open_store


def on_boundary(name: str) -> None:
    if name == sys.argv[1]:
        store = open_store(str(find_places().store_file))
        for turn in store.open_turns():
            store.request_cancel(turn.task_id, actor="user", now=time.time())


os._exit(run_dispatcher(ready=lambda: print("ready", flush=True), on_boundary=on_boundary))
