"""Makes the kept file of the present schema: run it once when a schema is released, then never again for that one."""

from __future__ import annotations

import itertools
from pathlib import Path

from shunter.model.records import Project, Push, Requirements, Row, Task, Turn
from shunter.model.states import PushState, Step, TaskState, TurnState
from shunter.store.queries import load_migrations
from shunter.store.sqlite import open_store
from shunter.wire.messages import End


def main() -> None:
    place = Path(__file__).parent / "data" / f"store-schema-{len(load_migrations())}.db"
    place.unlink(missing_ok=True)
    store = open_store(str(place))
    task = Task("t1", "kept", "exec", TaskState.QUEUED, "p", "r", "w", "a" * 40, "wip", "task/t1", 1.0)
    turn = Turn("t1-1", "t1", 1, TurnState.QUEUED, Step.WAITING, 1.0)
    project = Project("p", "r", "w", "/home/me/\udcff", "/home/me/.git")
    push = Push("t1", "o", "ssh://o/p", "kept", PushState.PLANNED, 1.0)
    store.add_task(task, turn, Row("t1-1", "t1", "s", Requirements("exec")), project, push=push)
    store.claim_row("t1-1", host="local", attempt_id="t1-1-a", owner="me", now=2.0)
    steps = [Step.CLAIMED, Step.LEASED, Step.SHIPPED, Step.ACCEPTED, Step.RUNNING, Step.ENDED]
    for old, new in itertools.pairwise(steps):
        state = TurnState.SUCCEEDED if new == Step.ENDED else None
        store.move_turn("t1-1", "t1-1-a", old, new, actor="me", now=3.0, state=state)
    end = {"state": TurnState.SUCCEEDED, "task_state": TaskState.OPEN, "actor": "me", "now": 4.0}
    store.settle_turn("t1-1", "t1-1-a", Step.ENDED, **end, outcome=End("done", "kept"))
    store.close()


if __name__ == "__main__":
    main()
