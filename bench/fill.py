"""Rows for a store, through the store's own calls; no process is asked."""

from __future__ import annotations

import time
from itertools import pairwise

from shunter.model.records import Project, Requirements, Row, Task, Turn
from shunter.model.states import Step, TaskState, TurnState
from shunter.store.sqlite import SqliteStore, open_store
from shunter.wire.ids import new_attempt_id, new_task_id, turn_id
from shunter.wire.messages import End, FileChange, Publication

from .world import World

PROJECT = Project("bench-0123456789", "0123456789abcdef", "fedcba9876543210", "/nowhere", "/nowhere/.git")

OUTCOME = End(
    outcome="done",
    evidence="exit status 0 and 3 commits",
    summary="What an agent says at its end: a paragraph or two, here of some length.\n" * 8,
    exit_code=0,
    publication=Publication(
        "1" * 40, 3, 3, files=tuple(FileChange(f"src/part/{n}.py", "M", n, n) for n in range(12)), files_total=12
    ),
)
FULL = 200


def open_world_store(world: World) -> SqliteStore:
    return open_store(str(world.state / "store.db"))


def add_waiting(store: SqliteStore, number: int, *, shapes: int = 1) -> str:
    """One task that waits; `number` tells its place and, with several shapes, what it wants of a host."""
    task_id = new_task_id()
    now = time.time()
    task = Task(
        id=task_id,
        title=f"task {number}: what a first line of a prompt looks like",
        agent="exec:true",
        state=TaskState.QUEUED,
        project_id=PROJECT.project_id,
        repo_id=PROJECT.repo_id,
        worktree_id=PROJECT.worktree_id,
        base_oid="0" * 40,
        base_kind="commit",
        branch=f"task/{task_id}",
        created_at=now,
    )
    turn = Turn(turn_id(task_id, 1), task_id, 1, TurnState.QUEUED, Step.WAITING, now)
    wanted = Requirements("exec", memory_mb=100 + number % shapes, project_id=PROJECT.project_id)
    store.add_task(task, turn, Row(turn.id, task_id, task.title, wanted), PROJECT)
    return turn.id


def fill_store(world: World, *, settled: int = 0, waiting: int = 0, shapes: int = 1) -> None:
    """`settled`: tasks that are over; the newest of them, which `list` shows, have run and hold their whole outcome."""
    store = open_world_store(world)
    for number in range(settled):
        turn = add_waiting(store, number, shapes=shapes)
        step, attempt = (Step.FETCHED, run_turn(store, turn)) if settled - number <= FULL else (Step.WAITING, None)
        state = TurnState.SUCCEEDED if attempt else TurnState.FAILED
        store.settle_turn(turn, attempt, step, state=state, task_state=TaskState.OPEN, actor="bench", now=time.time())
    for number in range(waiting):
        add_waiting(store, number, shapes=shapes)
    store.close()


def run_turn(store: SqliteStore, turn: str) -> str:
    """The records of a turn that went well, up to its fetch; its attempt."""
    attempt = new_attempt_id(turn)
    store.claim_row(turn, host="local", attempt_id=attempt, owner="bench", now=time.time())
    steps = (Step.CLAIMED, Step.LEASED, Step.SHIPPED, Step.ACCEPTED, Step.RUNNING, Step.ENDED, Step.FETCHED)
    for step, to_step in pairwise(steps):
        facts = {"outcome": OUTCOME, "state": TurnState.SUCCEEDED} if to_step == Step.ENDED else {}
        store.move_turn(turn, attempt, step, to_step, actor="bench", now=time.time(), **facts)
    return attempt
