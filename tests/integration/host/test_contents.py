"""What a host says that it holds, before somebody removes the whole of it: its ledger counts as much as the files."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

from small_disk import fill, small_disk

from shunter.wire.messages import CloseAsk, Closed, Contents, HeldTask, Nothing

from .world import World, code_of


def held(world: World) -> dict[str, HeldTask]:
    found: Contents = world.client.call("host.contents", Nothing())
    return {each.task_id: each for each in found.tasks}


def test_a_task_is_held_with_what_it_published_until_it_is_closed(world: World) -> None:
    attempt, status = world.run("sh", "-c", "echo x > x.txt")
    task_id = attempt.spec.task_id
    assert status.end is not None and status.end.publication is not None
    head_oid = status.end.publication.head_oid
    assert held(world) == {task_id: HeldTask(task_id, head_oid, loose=False)}
    world.client.call("task.close", CloseAsk(task_id, attempt.spec.project_id, head_oid, "test"))
    assert held(world) == {}


def test_a_task_whose_files_somebody_removed_is_held_for_its_result(world: World) -> None:
    attempt, status = world.run("sh", "-c", "echo x > x.txt")
    assert status.end is not None and status.end.publication is not None
    task_id, head_oid = attempt.spec.task_id, status.end.publication.head_oid
    shutil.rmtree(world.workspace(attempt).parent)
    shutil.rmtree(world.layout.job(attempt.id))
    assert held(world)[task_id].head_oid == head_oid
    for _ in range(2):  # whoever asked may not have heard the answer
        closed: Closed = world.client.call("task.close", CloseAsk(task_id, attempt.spec.project_id, head_oid, "test"))
        assert closed == Closed(removed=True) and held(world) == {}


def test_what_was_not_published_or_cannot_be_read_is_loose(world: World) -> None:
    one, _ = world.run("sh", "-c", "echo x > x.txt")
    two, _ = world.run("sh", "-c", "echo y > y.txt")
    with sqlite3.connect(world.data_root / "ledger.db", timeout=30) as ledger:
        set_end = "UPDATE attempt SET end = {} WHERE attempt_id = ?"
        ledger.execute(set_end.format("json_remove(end, '$.publication')"), (one.id,))
        ledger.execute(set_end.format("'{'"), (two.id,))
    ledger.close()
    found = held(world)
    assert [found[each.spec.task_id] for each in (one, two)] == [
        HeldTask(each.spec.task_id, None, loose=True) for each in (one, two)
    ]


def test_what_somebody_changed_after_the_turn_is_loose_and_keeps_the_task_from_being_closed(world: World) -> None:
    attempt, status = world.run("sh", "-c", "echo x > x.txt; echo '*.log' > .gitignore")
    assert status.end is not None and status.end.publication is not None
    task_id, head_oid = attempt.spec.task_id, status.end.publication.head_oid
    close = CloseAsk(task_id, attempt.spec.project_id, head_oid, "test")
    (world.workspace(attempt) / "late.log").write_text("ignored\n")
    assert held(world) == {task_id: HeldTask(task_id, head_oid, loose=False)}
    (world.workspace(attempt) / "x.txt").write_text("edited\n")
    assert held(world) == {task_id: HeldTask(task_id, head_oid, loose=True)}
    refused = code_of(lambda: world.client.call("task.close", close))
    assert refused.code == "RESULT_UNDELIVERED" and "'x.txt', changed after the last turn" in refused.text
    (world.workspace(attempt) / "x.txt").write_text("x\n")
    assert world.client.call("task.close", close) == Closed(removed=True)


def test_a_full_disk_keeps_nobody_from_closing_a_task(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", "24m"),
        contextlib.closing(World(tmp_path, data_root=tmp_path / "disk/d")) as world,
    ):
        attempt, status = world.run("sh", "-c", "echo x > x.txt")
        assert status.end is not None and status.end.publication is not None
        ask = CloseAsk(attempt.spec.task_id, attempt.spec.project_id, status.end.publication.head_oid, "test")
        make_room = fill(tmp_path / "disk", left_kib=16)  # as much as the ledger needs to note it
        try:
            assert world.client.call("task.close", ask) == Closed(removed=True)
        finally:
            make_room()
