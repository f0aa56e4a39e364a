"""The contract of `store.contract.Store`, run by every implementation.

A driver takes part by a line in `DRIVERS`: a function that opens a store at a place under the given directory, where
the same directory opened twice is the same store. What only holds for the SQLite file stands in test_store_file.py.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from shunter.model.records import Drain, Event, Options, Owner, Project, Push, Requirements, Row, Task, Turn
from shunter.model.states import AttemptState, PushState, Step, TaskState, TurnState
from shunter.store.sqlite import open_store
from shunter.wire.errors import ShunterError
from shunter.wire.messages import End, Publication, Question

# A worker of xdist has threads of its own; the children here touch none of what they hold.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
DRIVERS = {"sqlite": lambda folder, **options: open_store(str(folder / "store.db"), **options)}
PROJECT = Project("project", "repo", "tree", "/home/me/tree\udcff", "/home/me/tree/.git", name="tree")
ME = Owner("me", "home", "boot", 100, 5)
OTHER = Owner("other", "home", "boot", 200, 6)
OID = "a" * 40


@pytest.fixture(params=sorted(DRIVERS))
def open_it(request, tmp_path):
    opened = []

    def opener(**options):
        opened.append(DRIVERS[request.param](tmp_path, **options))
        return opened[-1]

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(open_it):
    return open_it()


def a_task(number=1, **changes):
    task_id = f"task{number}"
    return replace(
        Task(
            id=task_id,
            title=f"Task {number}",
            agent="exec",
            state=TaskState.QUEUED,
            project_id=PROJECT.project_id,
            repo_id=PROJECT.repo_id,
            worktree_id=PROJECT.worktree_id,
            base_oid=OID,
            base_kind="commit",
            branch=f"task/{task_id}",
            created_at=float(number),
        ),
        **changes,
    )


def a_turn(task, number=1):
    return Turn(f"{task.id}-{number}", task.id, number, TurnState.QUEUED, Step.WAITING, task.created_at)


def a_row(turn, **changes):
    return replace(Row(turn.id, turn.task_id, "a summary", Requirements("exec")), **changes)


def a_push(number=1, **changes):
    return replace(Push(f"task{number}", "forge/p", "ssh://forge/p", "mine", PushState.PLANNED, 1.0), **changes)


def published(head=OID, commits=1):
    return End("done", "well", publication=Publication(head, commits))


def submitted(store, number=1, *, row=None, push=None, **changes):
    """A waiting turn of a new task."""
    task = a_task(number, **changes)
    turn = a_turn(task)
    project = replace(PROJECT, project_id=task.project_id)
    events = [Event(1.0, "submitted", "me", task.id)]
    store.add_task(task, turn, a_row(turn, **(row or {})), project, events, push=push)
    return turn


def claimed(store, number=1, *, attempt="a1", push=None):
    turn = submitted(store, number, push=push)
    return store.claim_row(turn.id, host="local", attempt_id=attempt, owner="me", now=10.0)


FORWARD = [Step.CLAIMED, Step.LEASED, Step.SHIPPED, Step.ACCEPTED, Step.RUNNING, Step.ENDED, Step.FETCHED]


def at(store, step, number=1, *, attempt="a1", push=None):
    """A turn that has come as far as the given step."""
    turn = claimed(store, number, attempt=attempt, push=push)
    for old, new in itertools.pairwise(FORWARD[: FORWARD.index(step) + 1]):
        state = TurnState.SUCCEEDED if new == Step.ENDED else None
        assert store.move_turn(turn.id, attempt, old, new, actor="me", now=20.0, state=state)
    return store.load_turn(turn.id)


def settle(store, turn, *, state=TurnState.SUCCEEDED, task_state=TaskState.OPEN, **facts):
    return store.settle_turn(
        turn.id, turn.attempt_id, turn.step, state=state, task_state=task_state, actor="me", now=30.0, **facts
    )


@contextmanager
def fault(code):
    with pytest.raises(ShunterError) as caught:
        yield
    assert caught.value.code == code


class TestTasks:
    def test_what_was_added_is_loaded(self, store):
        task = a_task(options=Options(timeout_s=90.0, max_turns=3), model="m", pinned_host="far")
        turn = a_turn(task)
        row = store.add_task(task, turn, a_row(turn), PROJECT)
        assert store.load_task(task.id) == task
        assert store.load_turns(task.id) == [turn]
        assert store.load_project(task) == PROJECT
        assert store.load_row(turn.id) == row
        assert row.seq > 0

    def test_adding_writes_all_or_nothing(self, store):
        submitted(store)
        with fault("INTERNAL"):
            store.add_task(a_task(2), a_turn(a_task(1)), a_row(a_turn(a_task(1))), PROJECT)
        with fault("TASK_UNKNOWN"):
            store.load_task("task2")

    def test_a_full_id_wins_over_longer_ones_that_begin_with_it(self, store):
        submitted(store, 1)
        submitted(store, 10)
        assert store.find_task("task1").id == "task1"
        assert store.find_task("task10").id == "task10"

    def test_an_ambiguous_prefix_shows_its_candidates(self, store):
        submitted(store, 1)
        submitted(store, 2)
        with pytest.raises(ShunterError, match="task1, task2") as caught:
            store.find_task("ta")
        assert caught.value.code == "TASK_AMBIGUOUS"
        assert caught.value.hint

    @pytest.mark.parametrize("prefix", ["", "x", "TASK1", "task1x", "task1' OR 1=1", "%", "_", "\udcff"])
    def test_a_prefix_that_fits_nothing_is_unknown(self, store, prefix):
        submitted(store)
        with fault("TASK_UNKNOWN"):
            store.find_task(prefix)

    def test_the_list_is_newest_first_and_limited(self, store):
        for number in range(1, 6):
            submitted(store, number)
        assert [task.id for task in store.list_tasks(limit=2)] == ["task5", "task4"]

    def test_the_list_can_be_of_states_and_of_a_project(self, store):
        submitted(store, 1)
        settle(store, at(store, Step.FETCHED, 2))
        submitted(store, 3, project_id="elsewhere")
        assert [task.id for task in store.list_tasks(states=[TaskState.OPEN])] == ["task2"]
        assert [task.id for task in store.list_tasks(project_id="elsewhere")] == ["task3"]
        assert store.list_tasks(states=[]) == []
        assert store.count_tasks() == {TaskState.QUEUED: 2, TaskState.OPEN: 1}

    def test_the_first_session_id_stays(self, store):
        submitted(store)
        assert store.record_session("task1", "s-1")
        assert store.record_session("task1", "s-1")
        assert not store.record_session("task1", "s-2")
        assert store.load_task("task1").session_id == "s-1"

    def test_a_session_in_which_the_agent_went_on_takes_its_place(self, store):
        turn = at(store, Step.RUNNING)
        store.record_session(turn.task_id, "s-1")
        end = {"state": TurnState.SUCCEEDED, "outcome": End("done", "e", renamed_session="s-2")}
        assert store.move_turn(turn.id, "a1", Step.RUNNING, Step.ENDED, actor="me", now=30.0, **end)
        assert store.load_task(turn.task_id).session_id == "s-2"
        assert not store.record_session(turn.task_id, "s-1")

    def test_fetched_is_recorded_once(self, store):
        submitted(store)
        assert store.mark_fetched("task1", OID, ref="refs/x", actor="me", now=1.0)
        assert not store.mark_fetched("task1", OID, ref="refs/x", actor="me", now=2.0)
        assert store.load_task("task1").fetched_oid == OID
        assert [event.kind for event in store.events_since(0)].count("fetched") == 1

    def test_closing(self, store):
        turn = at(store, Step.FETCHED)
        with fault("TASK_BUSY"):
            store.close_task("task1", actor="me", reason="asked", now=40.0)
        settle(store, turn)
        assert store.close_task("task1", actor="me", reason="asked", now=40.0)
        assert not store.close_task("task1", actor="me", reason="asked", now=41.0)
        task = store.load_task("task1")
        assert (task.state, task.closed_at) == (TaskState.CLOSED, 40.0)

    def test_text_that_is_no_utf8_is_kept_readable(self, store):
        submitted(store, title="caf\udce9")
        assert store.load_task("task1").title == "caf\\udce9"


class TestFollowUps:
    def test_a_follow_up_queues_the_task_again(self, store):
        settle(store, at(store, Step.FETCHED))
        turn = a_turn(a_task(), 2)
        store.add_turn(turn, a_row(turn), actor="me")
        assert store.load_task("task1").state == TaskState.QUEUED
        assert store.load_latest_turns(["task1", "none"]) == {"task1": turn}

    def test_a_fresh_session_takes_the_place_of_the_former(self, store):
        settle(store, at(store, Step.FETCHED))
        assert store.record_session("task1", "first") and not store.record_session("task1", "other")
        turn = replace(a_turn(a_task(), 2), fresh_session=True)
        store.add_turn(turn, a_row(turn), actor="me")
        assert store.load_turn(turn.id).fresh_session
        assert store.load_task("task1").session_id is None
        assert store.record_session("task1", "other")

    def test_one_turn_is_open_at_a_time(self, store):
        submitted(store)
        turn = a_turn(a_task(), 2)
        with fault("TASK_BUSY"):
            store.add_turn(turn, a_row(turn), actor="me")

    def test_a_closed_task_takes_no_follow_up(self, store):
        settle(store, at(store, Step.FETCHED), task_state=TaskState.CLOSED)
        turn = a_turn(a_task(), 2)
        with fault("TASK_CLOSED"):
            store.add_turn(turn, a_row(turn), actor="me")

    def test_a_cancelled_follow_up_leaves_the_task_open(self, store):
        settle(store, at(store, Step.FETCHED))
        turn = a_turn(a_task(), 2)
        store.add_turn(turn, a_row(turn), actor="me")
        assert settle(store, turn, state=TurnState.CANCELLED)
        assert store.load_task("task1").state == TaskState.OPEN
        assert store.load_task("task1").host == "local"


class TestRepeats:
    def repeat(self, number=2):
        turn = replace(a_turn(a_task(), number), repeat_number=number - 1, repeat_limit=3)
        return turn, a_row(turn, pinned_host="local", not_before=90.0)

    def test_a_turn_ends_and_the_next_one_waits_in_one_step(self, store):
        turn, row = self.repeat()
        assert settle(store, at(store, Step.FETCHED), state=TurnState.SUCCEEDED, repeat=(turn, row))
        assert store.load_task("task1").state == TaskState.QUEUED
        assert store.load_turns("task1")[1] == turn
        assert store.waiting_rows(now=89.0) == []
        assert [each.turn_id for each in store.waiting_rows(now=90.0)] == [turn.id]
        assert store.next_due(now=31.0) == 90.0

    def test_none_follows_once_a_cancel_was_asked_for(self, store):
        former = at(store, Step.FETCHED)
        store.request_cancel("task1", actor="me", now=29.0)
        assert settle(store, former, repeat=self.repeat())
        assert store.load_task("task1").state == TaskState.OPEN
        assert len(store.load_turns("task1")) == 1

    def test_none_follows_when_somebody_else_settled_it(self, store):
        former = at(store, Step.FETCHED)
        assert settle(store, former)
        assert not settle(store, former, repeat=self.repeat())
        assert len(store.load_turns("task1")) == 1


class TestInterrupts:
    def message(self, number=2):
        turn = replace(a_turn(a_task(), number), account="codex")
        return turn, a_row(turn, pinned_host="local")

    @pytest.mark.parametrize("task_state", [TaskState.OPEN, TaskState.LOST])
    def test_the_message_is_kept_and_follows_whoever_settles_the_turn(self, open_it, task_state):
        store = open_it()
        former = at(store, Step.FETCHED)
        turn, row = self.message()
        assert store.interrupt_turn(turn, row, actor="you", now=29.0)
        assert store.load_turn(former.id).cancel_actor == "you"
        assert store.load_turns("task1") == [store.load_turn(former.id)]
        store.close()
        store = open_it()
        assert store.load_follow_up(former) == turn
        repeat = TestRepeats().repeat()
        assert settle(store, former, task_state=task_state, repeat=repeat)
        assert store.load_turns("task1")[1] == turn
        assert store.load_task("task1").state == TaskState.QUEUED
        assert [each.turn_id for each in store.waiting_rows(now=30.0)] == [turn.id]
        assert store.load_follow_up(former) is None

    def test_one_message_at_a_time_and_only_behind_the_open_turn(self, store):
        settle(store, at(store, Step.FETCHED))
        assert not store.interrupt_turn(*self.message(), actor="you", now=29.0)
        open_turn, row = self.message()
        store.add_turn(open_turn, row, actor="me")
        assert not store.interrupt_turn(*self.message(), actor="you", now=29.0)
        assert store.load_turn(open_turn.id).cancel_requested_at is None
        assert store.interrupt_turn(*self.message(3), actor="you", now=29.0)
        with fault("TASK_BUSY"):
            store.interrupt_turn(*self.message(3), actor="me", now=29.5)

    def test_a_cancel_gives_it_up(self, store):
        former = at(store, Step.FETCHED)
        store.interrupt_turn(*self.message(), actor="you", now=28.0)
        store.request_cancel("task1", actor="me", now=29.0)
        assert store.load_follow_up(former) is None
        assert "the message of turn 2 is given up" in [event.reason for event in store.events_since(0)]
        assert settle(store, former)
        assert len(store.load_turns("task1")) == 1

    def test_none_follows_in_a_task_that_never_ran(self, store):
        former = submitted(store)
        store.interrupt_turn(*self.message(), actor="you", now=29.0)
        assert settle(store, former, state=TurnState.CANCELLED, task_state=TaskState.ABANDONED)
        assert store.load_task("task1").state == TaskState.ABANDONED
        assert store.load_follow_up(former) is None


class TestAccounts:
    def ended(self, store, number, state, *, account="codex", now=30.0, outcome="failed"):
        task = a_task(number)
        turn = replace(a_turn(task), account=account)
        store.add_task(task, turn, a_row(turn), PROJECT)
        store.claim_row(turn.id, host="local", attempt_id=f"a{number}", owner="me", now=10.0)
        for old, new in itertools.pairwise(FORWARD):
            facts = {"state": state, "outcome": End(outcome, "so")} if new == Step.ENDED else {}
            store.move_turn(turn.id, f"a{number}", old, new, actor="me", now=20.0, **facts)
        end = {"state": state, "task_state": TaskState.OPEN, "actor": "me", "now": now}
        assert store.settle_turn(turn.id, f"a{number}", Step.FETCHED, **end)

    def failed(self, store, host="local", account="codex", **options):
        return [turn.task_id for turn in store.load_failures(host, account, **options)]

    def test_failures_count_for_their_account_and_host_newest_first(self, store):
        self.ended(store, 1, TurnState.FAILED, now=30.0)
        self.ended(store, 2, TurnState.FAILED, now=40.0)
        self.ended(store, 3, TurnState.FAILED, account="claude@work")
        assert self.failed(store) == ["task2", "task1"]
        assert self.failed(store, limit=1) == ["task2"]
        assert self.failed(store, host="far") == []
        assert store.list_accounts("local") == ["claude@work", "codex"]
        assert store.list_accounts("far") == []
        assert store.load_failures("local", "codex")[0].account == "codex"

    def test_only_those_since_a_turn_that_ended_well(self, store):
        self.ended(store, 1, TurnState.FAILED, now=30.0)
        self.ended(store, 2, TurnState.SUCCEEDED, now=40.0, outcome="done")
        self.ended(store, 3, TurnState.SUCCEEDED, now=45.0, account="claude", outcome="done")
        self.ended(store, 4, TurnState.FAILED, now=42.0)
        self.ended(store, 5, TurnState.CANCELLED, now=50.0, outcome="cancelled")
        assert self.failed(store) == ["task4"]

    def test_turns_without_an_account_count_for_none(self, store):
        self.ended(store, 1, TurnState.FAILED, account=None)
        assert store.list_accounts("local") == []

    def test_a_cleared_account_begins_anew(self, store):
        self.ended(store, 1, TurnState.FAILED, now=30.0)
        assert store.load_clearance("local", "codex") is None
        store.clear_account("local", "codex", actor="me", now=30.0)
        assert self.failed(store) == []
        self.ended(store, 2, TurnState.FAILED, now=40.0)
        assert self.failed(store) == ["task2"]
        store.clear_account("local", "codex", actor="me", now=50.0)
        assert (self.failed(store), store.load_clearance("local", "codex")) == ([], 50.0)
        assert [event.reason for event in store.events_since(0) if event.kind == "account cleared"] == [
            "codex on local"
        ] * 2


class TestPauses:
    def test_what_was_tried_goes_again_and_a_repeat_keeps_its_time(self, store):
        tried = submitted(store, 1)
        submitted(store, 2, row={"not_before": 100.0})
        store.claim_row(tried.id, host="local", attempt_id="a1", owner="me", now=1.0)
        store.return_row(
            tried.id, "a1", Step.CLAIMED, actor="me", now=2.0, reason_code="HOST_UNREACHABLE", not_before=90.0
        )
        assert store.waiting_rows(now=3.0) == [] and store.next_due(now=3.0) == 90.0
        store.end_pauses()
        assert [row.turn_id for row in store.waiting_rows(now=3.0)] == [tried.id]
        assert store.next_due(now=3.0) == 100.0


class TestQueue:
    def test_priority_goes_before_place(self, store):
        submitted(store, 1)
        submitted(store, 2)
        submitted(store, 3, row={"priority": 5})
        assert [row.turn_id for row in store.waiting_rows(now=0.0)] == ["task3-1", "task1-1", "task2-1"]

    def test_many_rows_of_one_kind_hide_no_row_of_another(self, store):
        for number in range(1, 5):
            submitted(store, number, row={"pinned_host": "busy"})
        submitted(store, 5)
        rows = store.waiting_rows(now=0.0, per_shape=2)
        assert [row.turn_id for row in rows] == ["task1-1", "task2-1", "task5-1"]
        assert [row.pinned_host for row in rows] == ["busy", "busy", None]

    def test_a_row_whose_time_has_not_come_is_left_out(self, store):
        submitted(store, 1, row={"not_before": 100.0})
        submitted(store, 2)
        assert [row.turn_id for row in store.waiting_rows(now=99.0)] == ["task2-1"]
        assert store.next_due(now=99.0) == 100.0
        assert [row.turn_id for row in store.waiting_rows(now=100.0)] == ["task1-1", "task2-1"]
        assert store.next_due(now=100.0) is None

    def test_a_claim_is_durable_with_host_and_attempt(self, store):
        turn = claimed(store)
        assert (turn.step, turn.host, turn.attempt_id, turn.attempt_number) == (Step.CLAIMED, "local", "a1", 1)
        assert store.load_turn(turn.id) == turn
        (attempt,) = store.load_attempts(turn.id)
        assert (attempt.id, attempt.state, attempt.host, attempt.number) == ("a1", AttemptState.OPEN, "local", 1)
        assert store.waiting_rows(now=0.0) == []
        assert [row.owner for row in store.list_rows()] == ["me"]

    def test_a_second_claim_gets_nothing(self, store):
        turn = claimed(store)
        assert store.claim_row(turn.id, host="far", attempt_id="a2", owner="me", now=11.0) is None
        assert len(store.load_attempts(turn.id)) == 1

    def test_a_claim_of_who_no_longer_leads_gets_nothing(self, store):
        turn = submitted(store)
        store.take_leadership(OTHER, now=1.0, dead=lambda _: None)
        assert store.claim_row(turn.id, host="local", attempt_id="a1", owner="me", now=2.0) is None
        assert store.claim_row(turn.id, host="local", attempt_id="a1", owner="other", now=2.0) is not None

    def test_a_returned_row_has_its_old_place_and_a_fresh_attempt(self, store):
        turn = claimed(store)
        submitted(store, 2)
        assert store.return_row(turn.id, "a1", Step.CLAIMED, actor="me", now=11.0, reason_code="CAPACITY_BUSY")
        assert [row.turn_id for row in store.waiting_rows(now=0.0)] == ["task1-1", "task2-1"]
        row = store.load_row(turn.id)
        assert (row.error_code, row.owner) == ("CAPACITY_BUSY", None)
        again = store.claim_row(turn.id, host="far", attempt_id="a2", owner="me", now=12.0)
        assert (again.attempt_number, again.host) == (2, "far")
        states = [(each.number, each.state, each.failure_code) for each in store.load_attempts(turn.id)]
        assert states == [(1, AttemptState.FAILED, "CAPACITY_BUSY"), (2, AttemptState.OPEN, None)]

    @pytest.mark.parametrize("step", [Step.CLAIMED, Step.LEASED, Step.SHIPPED])
    def test_every_step_before_acceptance_leads_back(self, store, step):
        turn = at(store, step)
        assert store.return_row(turn.id, "a1", step, actor="me", now=21.0, reason_code="X", not_before=50.0)
        back = store.load_turn(turn.id)
        assert back == replace(a_turn(a_task()), attempt_number=1)
        assert store.next_due(now=0.0) == 50.0

    def test_from_acceptance_only_a_tombstone_leads_back(self, store):
        turn = at(store, Step.ACCEPTED)
        assert store.load_task("task1").host == "local"
        with fault("INTERNAL"):
            store.return_row(turn.id, "a1", Step.ACCEPTED, actor="me", now=21.0, reason_code="X")
        assert store.load_turn(turn.id).step == Step.ACCEPTED
        assert store.return_row(turn.id, "a1", Step.ACCEPTED, actor="me", now=21.0, reason_code="X", tombstoned=True)
        assert store.load_attempts(turn.id)[0].state == AttemptState.TOMBSTONED
        task = store.load_task("task1")
        assert (task.state, task.host) == (TaskState.QUEUED, None)

    def test_an_uncertain_turn_never_returns_without_a_tombstone(self, store):
        turn = at(store, Step.SHIPPED)
        assert store.mark_uncertain(turn.id, "a1", True, actor="me", now=21.0, reason="no answer")
        with fault("INTERNAL"):
            store.return_row(turn.id, "a1", Step.SHIPPED, actor="me", now=22.0, reason_code="X")
        assert store.return_row(turn.id, "a1", Step.SHIPPED, actor="me", now=22.0, reason_code="X", tombstoned=True)

    @pytest.mark.parametrize("step", [Step.RUNNING, Step.ENDED, Step.FETCHED])
    def test_nothing_that_ran_goes_back(self, store, step):
        turn = at(store, step)
        with fault("INTERNAL"):
            store.return_row(turn.id, "a1", step, actor="me", now=21.0, reason_code="X", tombstoned=True)

    def test_a_return_by_an_old_attempt_changes_nothing(self, store):
        turn = claimed(store)
        assert not store.return_row(turn.id, "a0", Step.CLAIMED, actor="me", now=11.0, reason_code="X")
        assert not store.return_row(turn.id, "a1", Step.LEASED, actor="me", now=11.0, reason_code="X")
        assert store.load_turn(turn.id) == turn


class TestMoves:
    def test_a_whole_run_leaves_its_times_and_its_trail(self, store):
        turn = at(store, Step.FETCHED)
        outcome = End("done", "structured result", questions=(Question("?", ("a",)),), publication=Publication(OID, 1))
        assert settle(store, turn, outcome=outcome, exit_code=0)
        done = store.load_turn(turn.id)
        assert (done.step, done.state, done.outcome, done.exit_code) == (
            Step.SETTLED,
            TurnState.SUCCEEDED,
            outcome,
            0,
        )
        assert (done.claimed_at, done.accepted_at, done.settled_at) == (10.0, 20.0, 30.0)
        task = store.load_task("task1")
        assert (task.state, task.last_outcome, task.head_oid) == (TaskState.OPEN, "done", OID)
        assert store.load_row(turn.id) is None
        assert store.open_turns() == []
        steps = [event.to_state for event in store.events_since(0) if event.kind == "turn"]
        assert steps == [*FORWARD, Step.SETTLED]
        assert store.load_attempts(turn.id)[0].state == AttemptState.ENDED

    def test_facts_are_written_with_the_step(self, store):
        turn = at(store, Step.ACCEPTED)
        assert store.move_turn(
            turn.id,
            "a1",
            Step.ACCEPTED,
            Step.RUNNING,
            actor="me",
            now=21.0,
            started_at=20.5,
            session_id="s",
            lease_token="t",
        )
        assert store.load_turn(turn.id).started_at == 20.5
        assert store.load_task("task1").session_id == "s"
        assert store.load_attempts(turn.id)[0].lease_token == "t"

    def test_a_fact_that_is_not_given_stays(self, store):
        turn = at(store, Step.RUNNING)
        ended = {"actor": "me", "now": 22.0, "state": TurnState.FAILED}
        store.move_turn(turn.id, "a1", Step.RUNNING, Step.ENDED, **ended, exit_code=3, error_code="X", ended_at=21.5)
        store.move_turn(turn.id, "a1", Step.ENDED, Step.FETCHED, actor="me", now=23.0)
        turn = store.load_turn(turn.id)
        assert (turn.exit_code, turn.error_code, turn.ended_at, turn.state) == (3, "X", 21.5, TurnState.FAILED)

    @pytest.mark.parametrize(("attempt", "step"), [("a0", Step.CLAIMED), (None, Step.CLAIMED), ("a1", Step.SHIPPED)])
    def test_a_move_of_something_else_changes_nothing(self, store, attempt, step):
        turn = claimed(store)
        seen = store.events_since(0)
        target = Step.LEASED if step == Step.CLAIMED else Step.ACCEPTED
        assert not store.move_turn(turn.id, attempt, step, target, actor="me", now=11.0, error_code="X")
        assert store.load_turn(turn.id) == turn
        assert store.events_since(0) == seen

    @pytest.mark.parametrize(
        ("old", "new"),
        [(Step.CLAIMED, Step.RUNNING), (Step.CLAIMED, Step.WAITING), (Step.CLAIMED, Step.SETTLED)],
    )
    def test_a_move_outside_the_table_or_with_a_call_of_its_own_is_a_fault(self, store, old, new):
        turn = claimed(store)
        with fault("INTERNAL"):
            store.move_turn(turn.id, "a1", old, new, actor="me", now=11.0)
        assert store.load_turn(turn.id) == turn

    def test_an_end_needs_a_final_state(self, store):
        turn = at(store, Step.RUNNING)
        for state in (None, TurnState.RUNNING):
            with fault("INTERNAL"):
                store.move_turn(turn.id, "a1", Step.RUNNING, Step.ENDED, actor="me", now=21.0, state=state)

    def test_what_never_ran_cannot_succeed(self, store):
        turn = claimed(store)
        with fault("INTERNAL"):
            settle(store, turn)
        assert store.load_turn(turn.id) == turn

    def test_an_end_stays_what_it_was(self, store):
        turn = at(store, Step.ENDED)
        with fault("INTERNAL"):
            settle(store, turn, state=TurnState.FAILED)

    def test_settling_happens_once(self, store):
        turn = at(store, Step.FETCHED)
        assert settle(store, turn)
        assert not settle(store, turn)

    def test_a_first_turn_given_up_before_acceptance_abandons_its_task(self, store):
        turn = claimed(store)
        assert settle(
            store, turn, state=TurnState.FAILED, task_state=TaskState.ABANDONED, error_code="BASE_UNAVAILABLE"
        )
        assert store.load_task("task1").state == TaskState.ABANDONED
        assert store.load_attempts(turn.id)[0].state == AttemptState.FAILED
        assert store.load_turn(turn.id).error_code == "BASE_UNAVAILABLE"

    def test_news_end_the_uncertainty(self, store):
        turn = at(store, Step.RUNNING)
        for _ in range(2):
            assert store.mark_uncertain(turn.id, "a1", True, actor="me", now=21.0, reason="no answer")
        assert store.load_turn(turn.id).uncertain_reason == "no answer"
        assert not store.mark_uncertain(turn.id, "a0", False, actor="me", now=21.0)
        store.move_turn(turn.id, "a1", Step.RUNNING, Step.ENDED, actor="me", now=22.0, state=TurnState.SUCCEEDED)
        turn = store.load_turn(turn.id)
        assert (turn.uncertain, turn.uncertain_reason) == (False, None)
        assert [event.kind for event in store.events_since(0)].count("uncertain") == 1

    def test_open_turns_can_leave_out_the_queue(self, store):
        assert not store.has_open_turns()
        submitted(store, 1)
        under_way = claimed(store, 2)
        assert store.has_open_turns()
        assert [turn.id for turn in store.open_turns()] == ["task1-1", "task2-1"]
        assert store.open_turns(waiting=False) == [under_way]


class TestCancel:
    def test_a_waiting_turn_is_flagged_never_claimed_and_settled_by_the_caller(self, store):
        turn = submitted(store)
        assert store.request_cancel("task1", actor="me", now=5.0) == turn
        assert store.claim_row(turn.id, host="local", attempt_id="a1", owner="me", now=6.0) is None
        assert settle(store, turn, state=TurnState.CANCELLED, task_state=TaskState.ABANDONED)
        assert store.load_turn(turn.id).cancel_requested_at == 5.0
        assert store.load_attempts(turn.id) == []
        assert store.list_rows() == []

    def test_the_first_request_stands(self, store):
        claimed(store)
        store.request_cancel("task1", actor="me", now=5.0)
        found = store.request_cancel("task1", actor="you", now=6.0)
        assert (found.cancel_actor, found.cancel_requested_at) == ("me", 5.0)
        assert [event.kind for event in store.events_since(0)].count("cancel_requested") == 1

    def test_nothing_open_is_an_answer_and_an_unknown_task_an_error(self, store):
        settle(store, at(store, Step.FETCHED))
        assert store.request_cancel("task1", actor="me", now=5.0) is None
        with fault("TASK_UNKNOWN"):
            store.request_cancel("nope", actor="me", now=5.0)


class TestEvents:
    def test_reading_goes_on_from_a_number(self, store):
        submitted(store, 1)
        submitted(store, 2)
        first, second = store.events_since(0)
        assert (first.kind, first.task_id, first.seq < second.seq) == ("submitted", "task1", True)
        assert store.events_since(first.seq) == [second]
        assert store.newest_event() == second.seq
        assert store.events_since(0, task_id="task2") == [second]
        assert store.events_since(0, limit=1) == [first]


class TestLeadership:
    def test_the_first_one_leads(self, store):
        assert store.read_leader().owner is None
        assert store.take_leadership(ME, now=1.0, dead=lambda _: pytest.fail("nobody to judge")) == 1
        leader = store.read_leader()
        assert (leader.owner, leader.term, leader.renewed_at) == (ME, 1, 1.0)

    def test_taking_it_again_is_the_same_term(self, store):
        assert store.take_leadership(ME, now=1.0, dead=lambda _: None) == 1
        assert store.take_leadership(ME, now=2.0, dead=lambda _: None) == 1

    @pytest.mark.parametrize(
        ("verdict", "now", "term"),
        [
            (True, 2.0, 2),
            (None, 2.0, None),
            (None, 16.0, None),
            (None, 16.1, 2),
            (None, -5000.0, 2),
            (False, 2.0, None),
            (False, 9999.0, None),
        ],
    )
    def test_who_may_take_over(self, store, verdict, now, term):
        store.take_leadership(OTHER, now=1.0, dead=lambda _: None, ttl_s=15.0)
        assert store.take_leadership(ME, now=now, dead=lambda _: verdict) == term

    def test_a_new_leader_takes_the_rows_and_the_old_one_is_out(self, store):
        store.take_leadership(OTHER, now=1.0, dead=lambda _: None)
        turn = submitted(store)
        store.claim_row(turn.id, host="local", attempt_id="a1", owner="other", now=2.0)
        submitted(store, 2)
        term = store.take_leadership(ME, now=3.0, dead=lambda owner: owner == OTHER)
        assert [row.owner for row in store.list_rows()] == ["me", None]
        assert not store.renew_leadership(OTHER, 1, now=4.0)
        assert store.renew_leadership(ME, term, now=4.0)
        assert store.read_leader().renewed_at == 4.0

    def test_a_leader_resigns_only_without_work(self, store):
        term = store.take_leadership(ME, now=1.0, dead=lambda _: None)
        turn = submitted(store)
        assert not store.resign_if_idle(ME, term)
        settle(store, turn, state=TurnState.CANCELLED, task_state=TaskState.ABANDONED)
        assert store.resign_if_idle(ME, term)
        assert store.resign_if_idle(ME, term)
        leader = store.read_leader()
        assert (leader.owner, leader.term) == (None, term)
        assert store.take_leadership(ME, now=2.0, dead=lambda _: None) == term + 1

    def test_of_two_who_decided_from_the_same_look_one_leads(self, open_it):
        one, two = open_it(), open_it()
        one.take_leadership(Owner("late", "h", "b", 1), now=0.0, dead=lambda _: None)

        def slow_judge(_):
            assert two.take_leadership(OTHER, now=100.0, dead=lambda _: True) == 2
            return True

        assert one.take_leadership(ME, now=100.0, dead=slow_judge) is None


class TestSeveralAtOnce:
    def test_a_second_opening_sees_what_the_first_wrote(self, open_it):
        one, two = open_it(), open_it()
        turn = claimed(one)
        assert two.load_turn(turn.id) == turn

    def test_threads_share_a_store(self, store):
        faults = []

        def work(first):
            try:
                for number in range(first, first + 10):
                    settle(store, at(store, Step.FETCHED, number, attempt=f"a{number}"))
            except Exception as exc:
                faults.append(exc)

        threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(1, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        assert store.count_tasks() == {TaskState.OPEN: 30}

    def test_two_processes_race_for_every_row_and_each_row_is_won_once(self, open_it, tmp_path):
        store = open_it()
        turns = [submitted(store, number) for number in range(1, 41)]

        def claim_all(name):
            mine = open_it()
            won = [
                turn.id
                for turn in turns
                if mine.claim_row(turn.id, host=name, attempt_id=f"{turn.id}-{name}", owner="me", now=2.0)
            ]
            (tmp_path / name).write_text("\n".join(won))

        for child in [_forked(claim_all, "one"), _forked(claim_all, "two")]:
            assert os.waitpid(child, 0)[1] == 0
        won = [line for name in ("one", "two") for line in (tmp_path / name).read_text().split()]
        assert sorted(won) == sorted(turn.id for turn in turns)
        assert all(len(store.load_attempts(turn.id)) == 1 for turn in turns)

    @pytest.mark.parametrize("action", ["add", "claim", "settle"])
    def test_a_process_killed_at_any_statement_leaves_all_or_nothing(self, open_it, action):
        """Kill at statement 1, then 2, …, until a run meets no kill; what is left equals before or after."""
        store = open_it()
        for number in itertools.count(1):
            before, work, after = _scenario(store, action, number)

            def run(at_statement=number, work=work):
                seen = itertools.count(1)

                def kill(_statement):
                    if next(seen) == at_statement:
                        os.kill(os.getpid(), signal.SIGKILL)

                mine = open_it()
                mine.load_row("warm")
                mine.close()
                work(open_it(trace=kill))

            status = os.waitpid(_forked(run), 0)[1]
            left = _look(store, f"task{number}")
            assert left in (before, after), f"killed at statement {number}"
            if status == 0:
                assert left == after
                break
            assert os.WIFSIGNALED(status)
        assert number > 5


class TestHosts:
    def test_a_drain_stands_until_the_host_is_enabled(self, store):
        assert store.list_drains() == []
        assert store.drain_host("two", actor="user", reason="disk", now=1.0)
        assert not store.drain_host("two", actor="set-up", reason="other", now=2.0)
        assert store.drain_host("one", actor="user", reason=None, now=3.0)
        assert store.list_drains() == [Drain("one", 3.0, "user"), Drain("two", 1.0, "user", "disk")]
        assert store.enable_host("two", actor="user", now=4.0)
        assert not store.enable_host("two", actor="user", now=5.0)
        assert [drain.host for drain in store.list_drains()] == ["one"]

    def test_each_change_is_in_the_audit_trail_once(self, store):
        seq = store.newest_event()
        store.drain_host("two", actor="user", reason="disk", now=1.0)
        store.drain_host("two", actor="user", reason="disk", now=2.0)
        store.enable_host("two", actor="me", now=3.0)
        store.enable_host("two", actor="me", now=4.0)
        told = [(each.kind, each.actor, each.reason) for each in store.events_since(seq)]
        assert told == [("host drained", "user", "two: disk"), ("host enabled", "me", "two")]


class TestWhatAHostHadAcceptedBefore:
    def test_a_claimed_turn_becomes_the_attempt_that_the_host_knows(self, store):
        turn = claimed(store)
        assert store.adopt_attempt(turn.id, "a1", "a0", actor="me", now=20.0, reason="had it before")
        found = store.load_turn(turn.id)
        assert (found.step, found.attempt_id, found.accepted_at) == (Step.ACCEPTED, "a0", 20.0)
        assert [(each.id, each.state) for each in store.load_attempts(turn.id)] == [("a0", AttemptState.ACCEPTED)]
        task = store.load_task(turn.task_id)
        assert (task.state, task.host) == (TaskState.ACTIVE, "local")
        assert not store.adopt_attempt(turn.id, "a1", "a0", actor="me", now=21.0, reason="again")
        assert store.move_turn(turn.id, "a0", Step.ACCEPTED, Step.RUNNING, actor="me", now=22.0)

    def test_only_a_claimed_turn(self, store):
        turn = at(store, Step.LEASED)
        assert not store.adopt_attempt(turn.id, "a1", "a0", actor="me", now=20.0, reason="had it before")
        assert store.load_turn(turn.id).attempt_id == "a1"

    def test_first_turns_that_have_waited_since(self, store):
        first, second, third = (submitted(store, number) for number in (1, 2, 3))
        store.claim_row(second.id, host="local", attempt_id="a2", owner="me", now=10.0)
        assert store.waiting_first_turns(before=third.created_at + 1) == [first.id, third.id]
        assert store.waiting_first_turns(before=first.created_at) == []


class TestPushes:
    def wanted(self, store, number=1, *, end=None, **changes):
        """A task whose turn has published."""
        turn = at(store, Step.RUNNING, number, attempt=f"a{number}", push=a_push(number, **changes))
        ended = {"state": TurnState.SUCCEEDED, "outcome": end or published()}
        assert store.move_turn(turn.id, turn.attempt_id, Step.RUNNING, Step.ENDED, actor="me", now=25.0, **ended)
        return store.load_push(turn.task_id)

    def settled(self, store, number=1):
        settle(store, store.load_turn(f"task{number}-1"))

    def test_what_was_reserved_is_loaded(self, store):
        submitted(store, push=a_push())
        submitted(store, 2)
        assert store.load_push("task1") == a_push()
        assert store.load_push("task2") is None
        assert store.load_pushes(["task1", "task2", "task9"]) == {"task1": a_push()}
        assert store.next_push_due() is None

    def test_a_branch_belongs_to_one_open_task_and_nothing_is_stored_of_a_second(self, store):
        submitted(store, push=a_push())
        with pytest.raises(ShunterError, match="task1") as caught:
            submitted(store, 2, push=a_push(2))
        assert caught.value.code == "BRANCH_TAKEN" and caught.value.hint
        with fault("TASK_UNKNOWN"):
            store.load_task("task2")
        submitted(store, 3, push=a_push(3, branch="other"))
        submitted(store, 4, push=a_push(4, origin="elsewhere/p"))

    @pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b/c", "a/b"), ("a/b", "a")])
    def test_a_branch_below_another_cannot_stand_beside_it(self, store, first, second):
        submitted(store, push=a_push(branch=first))
        with fault("BRANCH_TAKEN"):
            submitted(store, 2, push=a_push(2, branch=second))
        submitted(store, 3, push=a_push(3, branch=first + "x"))

    def test_an_abandoned_or_closed_task_frees_its_branch(self, store):
        turn = submitted(store, push=a_push())
        store.settle_turn(
            turn.id, None, Step.WAITING, state=TurnState.CANCELLED, task_state=TaskState.ABANDONED, actor="me", now=2.0
        )
        assert store.load_push("task1").state == PushState.DROPPED
        self.wanted(store, 2)
        self.settled(store, 2)
        store.close_task("task2", actor="me", reason="discard", now=40.0)
        found = store.load_push("task2")
        assert (found.state, found.next_try_at) == (PushState.DROPPED, None)
        assert submitted(store, 3, push=a_push(3))

    def test_an_end_makes_its_commit_wanted_and_due_at_once(self, store):
        found = self.wanted(store)
        assert (found.state, found.wanted_oid, found.next_try_at) == (PushState.PENDING, OID, 25.0)
        assert store.due_pushes(now=24.9) == []
        assert store.due_pushes(now=25.0) == [found]
        assert [event.to_state for event in store.events_since(0, task_id="task1") if event.kind == "push"] == [
            "pending"
        ]

    def test_no_commits_are_nothing_to_push(self, store):
        found = self.wanted(store, end=published(commits=0))
        assert (found.state, found.next_try_at) == (PushState.NOTHING, None)

    def test_an_end_without_a_publication_leaves_it_planned_until_that_is_mended(self, store):
        found = self.wanted(store, end=End("done", "well"))
        assert found.state == PushState.PLANNED
        self.settled(store)
        assert store.record_publication("task1-1", published(), actor="me", now=50.0)
        assert store.load_push("task1").state == PushState.PENDING

    def test_what_came_of_a_try_is_recorded_once(self, store):
        push = self.wanted(store)
        facts = {"next_try_at": 60.0, "error_code": "ORIGIN_UNREACHABLE", "error_text": "down", "hint": "wait"}
        assert store.record_push(push, PushState.FAILED, actor="me", now=30.0, **facts)
        assert not store.record_push(push, PushState.FAILED, actor="me", now=30.0, **facts)
        found = store.load_push("task1")
        assert (found.tries, found.next_try_at, found.error_text, found.hint) == (1, 60.0, "down", "wait")
        assert store.next_push_due() == 60.0
        assert store.record_push(found, PushState.PUSHED, actor="me", now=61.0)
        found = store.load_push("task1")
        assert (found.state, found.pushed_oid, found.error_code) == (PushState.PUSHED, OID, None)
        assert store.next_push_due() is None

    def test_a_server_that_is_away_in_ever_other_words_is_told_once(self, store):
        self.wanted(store)
        before = len(store.events_since(0))
        for tries, text in enumerate(("Connection reset", "Connection refused", "Connection reset")):
            facts = {"next_try_at": 60.0 + tries, "error_code": "ORIGIN_UNREACHABLE", "error_text": text}
            assert store.record_push(store.load_push("task1"), PushState.FAILED, actor="me", now=30.0 + tries, **facts)
        assert store.load_push("task1").error_text == "Connection reset"
        told = [each.reason for each in store.events_since(0)[before:]]
        assert told == ["ORIGIN_UNREACHABLE: Connection reset"]
        now = {"error_code": "ORIGIN_AUTH", "error_text": "no key"}
        assert store.record_push(store.load_push("task1"), PushState.FAILED, actor="me", now=40.0, **now)
        assert [each.reason for each in store.events_since(0)[before + 1 :]] == ["ORIGIN_AUTH: no key"]

    def test_a_try_of_a_commit_that_is_no_longer_wanted_counts_for_nothing(self, store):
        old = self.wanted(store)
        self.settled(store)
        assert store.record_publication("task1-1", published("b" * 40), actor="me", now=50.0)
        assert not store.record_push(old, PushState.PUSHED, actor="me", now=51.0)
        found = store.load_push("task1")
        assert (found.state, found.wanted_oid, found.pushed_oid) == (PushState.PENDING, "b" * 40, None)

    def test_a_person_has_it_tried_anew(self, store):
        submitted(store, 2)
        assert not store.retry_push("task2", actor="me", now=1.0)
        push = self.wanted(store)
        assert store.record_push(push, PushState.REFUSED, actor="me", now=30.0, error_code="PUBLISH_REFUSED")
        assert store.next_push_due() is None
        assert store.retry_push("task1", actor="me", now=70.0)
        found = store.load_push("task1")
        assert (found.state, found.tries, found.next_try_at, found.error_code) == (PushState.PENDING, 0, 70.0, None)
        assert store.record_push(found, PushState.PUSHED, actor="me", now=71.0)
        assert not store.retry_push("task1", actor="me", now=72.0)

    def test_nobody_stops_leading_while_a_push_is_due_some_time(self, store):
        term = store.take_leadership(ME, now=1.0, dead=lambda owner: None)
        turn = at(store, Step.RUNNING, push=a_push())
        ended = {"state": TurnState.SUCCEEDED, "outcome": published()}
        store.move_turn(turn.id, "a1", Step.RUNNING, Step.ENDED, actor="me", now=25.0, **ended)
        self.settled(store)
        assert not store.resign_if_idle(ME, term)
        assert store.record_push(store.load_push("task1"), PushState.PUSHED, actor="me", now=26.0)
        assert store.resign_if_idle(ME, term)


def _scenario(store, action, number):
    """What is there before, the work, and what is there afterwards."""
    if action == "add":
        return "nothing", lambda mine: submitted(mine, number), "waiting queued attempts=0 row=None"
    if action == "claim":
        turn = submitted(store, number)

        def claim(mine):
            mine.claim_row(turn.id, host="local", attempt_id=f"a{number}", owner="me", now=2.0)

        return "waiting queued attempts=0 row=None", claim, "claimed queued attempts=1 row=me"
    turn = at(store, Step.FETCHED, number, attempt=f"a{number}")
    return "fetched active attempts=1 row=me", lambda mine: settle(mine, turn), "settled open attempts=1 row=gone"


def _look(store, task_id):
    turns = store.load_turns(task_id)
    if not turns:
        with fault("TASK_UNKNOWN"):
            store.load_task(task_id)
        return "nothing"
    row = store.load_row(turns[0].id)
    owner = "gone" if row is None else row.owner
    state = store.load_task(task_id).state
    return f"{turns[0].step} {state} attempts={len(store.load_attempts(turns[0].id))} row={owner}"


def _forked(work, *arguments):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work(*arguments)
            status = 0
        finally:
            os._exit(status)
    return child
