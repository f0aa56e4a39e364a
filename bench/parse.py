"""What reading an agent's events adds to a turn that prints 100 MB of them, and what the supervisor weighs meanwhile.

The comparison is the same bytes from a command (`exec`), whose output is no events to anybody. The events are Codex's:
commands whose output is 9 KB of text each. Paced at 10 MB/s, which is faster than any agent; at once, as fast as a pipe
takes them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from .measure import interleaved, memory_mib
from .table import Row, Table
from .world import World

BYTES, PIECES, PACED_S, RUNS = 100_000_000, 100, 10, 3
OUTPUT = "".join(f'line {number}: some output of a "test run" with\ttabs\n' for number in range(180))


def run() -> list[Table]:
    with World(slots=1, files=1, commits=1) as world:
        stream = world.root / "stream"
        item = {"id": "item_1", "type": "command_execution", "command": "make test", "exit_code": 0}
        line = json.dumps({"type": "item.completed", "item": {**item, "aggregated_output": OUTPUT}}).encode() + b"\n"
        piece = line * (BYTES // PIECES // len(line))
        stream.write_bytes(b'{"type":"thread.started","thread_id":"0199"}\n' + piece)
        printers = {}
        for name, pause in (("paced", PACED_S / PIECES), ("at-once", 0)):
            printers[name] = world.root / name
            loop = f"for i in $(seq {PIECES}); do cat {stream}; {f'sleep {pause}' if pause else ':'}; done"
            printers[name].write_text(f"#!/bin/sh\n{loop}\n")
            printers[name].chmod(0o755)
        config = world.root / "config" / "shunter" / "config.toml"
        plain = config.read_text()
        weights: list[float] = []

        def turn(name: str, agent: str) -> Callable[[], float]:
            def took() -> float:
                command = json.dumps([str(printers[name])])
                config.write_text(f"{plain}\n[agents.codex]\ncommand = {command}\n")
                over = threading.Event()
                watcher = threading.Thread(target=weigh, args=(world, over, weights if agent == "codex" else []))
                watcher.start()
                task = world.json("submit", "-a", agent, "go")["id"]
                world.shunter("wait", task)
                over.set()
                watcher.join()
                stages = dict(world.json("status", task)["timing"][0]["stages"])
                return float(stages["run"] + stages["publish"])

            return took

        rows = []
        for name, words, times in (("paced", "over 10 s", 1.05), ("at-once", "as fast as a pipe takes them", None)):
            ours, theirs = interleaved(RUNS, turn(name, "codex"), turn(name, f"exec:{printers[name]}"))
            rows.append(Row(f"100 MB of events, {words}", ours, theirs, unit="s", times=times))
        rows.append(Row("supervisor meanwhile (PSS)", weights, unit="MiB", at_most=8))
    return [Table("Reading an agent's events", "the same bytes as plain output", rows)]


def weigh(world: World, over: threading.Event, found: list[float]) -> None:
    """While the agent runs; the same process is the publisher afterwards."""
    while not over.wait(0.2):
        for pid in world.supervisor_pids():
            if any(world.pids(name) for name in ("/paced", "/at-once")):
                found.append(memory_mib(pid, "Pss"))
                time.sleep(0.3)
