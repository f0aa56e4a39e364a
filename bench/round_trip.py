"""A question to a host on an open session, against the same bytes through two bare pipes."""

from __future__ import annotations

import subprocess
import time

from shunter.fleet.client import HostClient
from shunter.fleet.transport import LocalTransport
from shunter.wire import rpc
from shunter.wire.messages import AttemptRef

from .measure import interleaved
from .table import Row, Table
from .world import World

RUNS = 400


def run() -> list[Table]:
    ask = AttemptRef("0123456789-1-abcdef", "0123456789-1")
    line = rpc.request(1, "attempt.status", ask, 60.0)
    with World(files=1, commits=1) as world:
        client = HostClient(LocalTransport("local", world.data))
        echo = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

        def ours() -> float:
            began = time.perf_counter()
            client.call("attempt.status", ask)
            return (time.perf_counter() - began) * 1000

        def bare() -> float:
            assert echo.stdin is not None and echo.stdout is not None
            began = time.perf_counter()
            echo.stdin.write(line)
            echo.stdin.flush()
            echo.stdout.readline()
            return (time.perf_counter() - began) * 1000

        try:
            asked, piped = interleaved(RUNS, ours, bare)
        finally:
            client.close()
            echo.communicate()
    return [Table("Round trip on an open session", "bare pipes", [Row("`attempt.status`", asked, piped, plus=2)])]
