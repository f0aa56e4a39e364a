"""A process that submits many trivial tasks through the service, waits for all, and tells where their time went.

argv: repository, number of tasks, command of the agent. Prints JSON: seconds in all, seconds until the last row was
stored, and one object of stages for each turn; none with a first word `--plain`, for hosts whose files are not here.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from shunter.service.home import Home
from shunter.service.submit import SubmitAsk, submit_task
from shunter.service.view import load_detail, timing_of
from shunter.service.waiting import wait_for


def main(repo: str, number: int, agent: str, *, plain: bool) -> None:
    began = time.time()
    home = Home()
    ask = SubmitAsk(b"do it", {"agent": agent}, directory=Path(repo))
    ids = [submit_task(home, ask).task.id for _ in range(number)]
    stored = time.time()
    wait_for(home, ids, timeout_s=None)
    turns = []
    for task_id in () if plain else ids:
        turn = load_detail(home.reading, task_id).turns[-1]
        exited_at = json.loads(Path(home.places.host_data_root, "signals", f"{turn.attempt_id}.exited").read_text())[
            "at"
        ]
        stages = dict(timing_of(turn).stages)
        stages["start"] = (turn.started_at or exited_at) - (turn.accepted_at or exited_at)
        stages["agent"] = exited_at - (turn.started_at or exited_at)
        stages["publish"] = (turn.ended_at or exited_at) - exited_at
        turns.append(stages)
    print(json.dumps({"all_s": time.time() - began, "stored_s": stored - began, "turns": turns}))


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--plain"]
    main(words[0], int(words[1]), words[2], plain="--plain" in sys.argv)
