"""The dispatcher as a process. argv: the descriptor to say `ok` on, once somebody leads."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable

from ..fleet.config import load_config
from ..fleet.places import find_places
from ..store.sqlite import open_store
from ..wire.errors import ShunterError
from .leadership import is_dead, this_process
from .log import log
from .loop import LEASE_TTL_S, Dispatcher
from .wake import READY


def run_dispatcher(
    *,
    ready: Callable[[], None],
    failed: Callable[[str], None] = lambda why: None,
    on_boundary: Callable[[str], None] = lambda name: None,
) -> int:
    """Lead until nothing is left to do. 0 also when somebody else leads; else the exit status of the fault."""
    places = find_places()
    try:
        config = load_config(places)
        store = open_store(str(places.store_file))
        here = this_process(places)
        term = store.take_leadership(
            here, now=time.time(), dead=lambda other: is_dead(other, here=here), ttl_s=LEASE_TTL_S
        )
        if term is None:
            ready()
            return 0
        dispatcher = Dispatcher(store, places, config, here, term, on_boundary=on_boundary)
        ready()
        dispatcher.run()
        dispatcher.close()
        store.close()
    except ShunterError as exc:
        failed(f"{exc.code}: {exc.text}")
        log(f"{exc.code}: {exc.text}")
        return exc.exit_status
    return 0


def teller(fd: int) -> Callable[[str], None]:
    """Says one word to whoever started us. The number may be another file's after that, so no more is written."""
    left = [fd]

    def say(word: str) -> None:
        if left:
            mine = left.pop()
            with contextlib.suppress(OSError):
                os.write(mine, word.encode("utf-8", "replace")[:1024])
                os.close(mine)

    return say


def main() -> None:
    say = teller(int(sys.argv[1]))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        status = run_dispatcher(ready=lambda: say(READY), failed=say)
    except Exception as exc:
        say(f"INTERNAL: {type(exc).__name__}: {exc}")
        raise
    os._exit(status)  # threads of the pool may still wait for a host that does not answer


if __name__ == "__main__":
    main()
