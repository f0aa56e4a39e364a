"""What the SQLite file adds to the store's contract: opening, damage, locks, plans."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from pathlib import Path

import pytest
from small_disk import fill, small_disk

from shunter.model.records import Event, Project, Requirements, Row, Task, Turn
from shunter.model.states import Step, TaskState, TurnState
from shunter.store import file
from shunter.store.queries import load_migrations, load_queries
from shunter.store.sqlite import open_store
from shunter.wire.errors import ShunterError

# A worker of xdist has threads of its own; the children here touch none of what they hold.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
RELEASED = sorted((Path(__file__).parent / "data").glob("store-schema-*.db"))


def a_task(number):
    task_id = f"t{number:09d}"
    task = Task(
        task_id, "t", "exec", TaskState.QUEUED, "p", "r", "w", "a" * 40, "commit", f"task/{task_id}", float(number)
    )
    turn = Turn(f"{task_id}-1", task_id, 1, TurnState.QUEUED, Step.WAITING, float(number))
    return task, turn, Row(turn.id, task_id, "s", Requirements("exec")), Project("p", "r", "w", "/w", "/w/.git")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "home dir?#%" / "store.db")


@pytest.fixture
def filled(path):
    """A closed store with a few tasks."""
    os.mkdir(os.path.dirname(path))
    store = open_store(path)
    for number in range(40):
        store.add_task(*a_task(number))
    store.close()
    return path


def refused(code, path, **options):
    """Opening answers with the code, says the path and a remedy, and leaves every byte as it was."""
    folder = os.path.dirname(path)
    before = {entry.name: entry.read_bytes() for entry in Path(folder).glob("*") if entry.is_file()}
    with pytest.raises(ShunterError) as caught:
        open_store(path, **options).list_tasks()
    assert caught.value.code == code
    assert path in caught.value.text or folder in caught.value.text
    assert caught.value.hint
    kept = {entry.name: entry.read_bytes() for entry in Path(folder).glob("*") if entry.name in before}
    assert {name: kept[name] for name in before if not name.endswith("-shm")} == {
        name: content for name, content in before.items() if not name.endswith("-shm")
    }
    return caught.value


def in_child(work, *, uid=None):
    """Run the work in a forked child, as another user when asked, and return what it raised as a code."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answer = ""
        try:
            if uid is not None:
                os.setuid(uid)
            work()
        except ShunterError as exc:
            answer = exc.code
        except BaseException as exc:
            answer = repr(exc)
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with open(reader, "rb") as pipe:
        return pipe.read().decode()


class TestOpening:
    def test_a_new_store_is_private_whole_and_alone(self, path):
        os.mkdir(os.path.dirname(path))
        open_store(path).close()
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert set(os.listdir(os.path.dirname(path))) <= {"store.db", "store.db-shm", "store.db-wal"}

    def test_the_settings_that_everything_rests_on(self, filled):
        link = file.connect(filled)
        found = {
            name: link.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
        link.close()
        assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}

    def test_a_writer_makes_the_directory_closed_to_others(self, path):
        place = os.path.join(os.path.dirname(path), "deep", "store.db")
        open_store(place).close()
        for folder in (os.path.dirname(path), os.path.dirname(place)):
            assert os.stat(folder).st_mode & 0o777 == 0o700

    def test_a_directory_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(ShunterError) as caught:
            open_store(tmp_path / "file" / "store.db")
        assert caught.value.code == "STORE_UNAVAILABLE"
        assert str(tmp_path / "file") in caught.value.text

    @pytest.mark.parametrize("options", [{"create": False}, {"readonly": True}])
    def test_a_reader_makes_no_store(self, path, options):
        os.mkdir(os.path.dirname(path))
        refused("STORE_UNAVAILABLE", path, **options)
        assert os.listdir(os.path.dirname(path)) == []

    def test_a_reader_cannot_write(self, filled):
        store = open_store(filled, readonly=True)
        assert len(store.list_tasks()) == 40
        with pytest.raises(ShunterError) as caught:
            store.record_session("t000000001", "s")
        assert caught.value.code == "STORE_UNAVAILABLE"
        store.close()

    def test_a_directory_in_its_place(self, path):
        os.makedirs(path)
        refused("STORE_UNAVAILABLE", path)

    @pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
    def test_somebody_elses_store(self, tmp_path_factory):
        folder = Path("/tmp") / f"shunter-test-{os.getpid()}"
        folder.mkdir(mode=0o755)
        try:
            place = str(folder / "store.db")
            open_store(place).close()
            assert in_child(lambda: open_store(place), uid=65534) == "STORE_UNAVAILABLE"
            os.chmod(place, 0o644)
            assert in_child(lambda: open_store(place).record_session("x", "y"), uid=65534) == "STORE_UNAVAILABLE"
            assert in_child(lambda: open_store(str(folder / "new.db")), uid=65534) == "STORE_UNAVAILABLE"
        finally:
            shutil.rmtree(folder)

    def test_many_openers_of_nothing_make_one_store(self, path):
        os.mkdir(os.path.dirname(path))
        children = []
        for number in range(6):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    open_store(path).add_task(*a_task(number))
                    status = 0
                finally:
                    os._exit(status)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
        store = open_store(path)
        assert len(store.list_tasks()) == 6
        store.close()


class TestDamage:
    def test_an_empty_file_is_damage_and_no_beginning(self, path):
        os.mkdir(os.path.dirname(path))
        Path(path).touch()
        refused("STORE_DAMAGED", path)

    @pytest.mark.parametrize(
        "content", [b"[]", b"garbage" * 1000, b"SQLite format 3\0", b"SQLite format 3\0" + b"\0" * 4096]
    )
    def test_garbage(self, path, content):
        os.mkdir(os.path.dirname(path))
        Path(path).write_bytes(content)
        refused("STORE_DAMAGED", path)

    def test_a_database_of_another_program(self, path):
        os.mkdir(os.path.dirname(path))
        link = sqlite3.connect(path)
        link.execute("CREATE TABLE mine (x)")
        link.commit()
        link.close()
        refused("STORE_DAMAGED", path)

    @pytest.mark.parametrize("share", [0.001, 0.3, 0.9])
    def test_a_truncated_file(self, filled, share):
        os.truncate(filled, int(os.path.getsize(filled) * share))
        refused("STORE_DAMAGED", filled)

    def test_a_truncated_file_beside_a_write_ahead_log(self, filled):
        whole = Path(filled).read_bytes()
        store = open_store(filled)
        store.add_task(*a_task(100))
        log = Path(filled + "-wal").read_bytes()
        store.close()
        Path(filled).write_bytes(whole[:8192])
        Path(filled + "-wal").write_bytes(log)
        refused("STORE_DAMAGED", filled)

    def test_a_scrambled_schema(self, filled):
        content = bytearray(Path(filled).read_bytes())
        content[100:2000] = b"\xff" * 1900
        Path(filled).write_bytes(content)
        refused("STORE_DAMAGED", filled)

    def test_a_log_without_its_file(self, path):
        os.mkdir(os.path.dirname(path))
        Path(path + "-wal").write_bytes(b"frames of a store that was moved aside")
        refused("STORE_DAMAGED", path)

    def test_a_newer_schema(self, filled):
        link = sqlite3.connect(filled)
        link.execute("PRAGMA user_version = 99")
        link.close()
        refused("STORE_NEWER", filled)

    def test_an_unknown_field_in_a_stored_record(self, filled):
        link = sqlite3.connect(filled)
        link.execute("UPDATE tasks SET options = json_set(options, '$.surprise', 1) WHERE id = 't000000001'")
        link.commit()
        link.close()
        store = open_store(filled)
        with pytest.raises(ShunterError) as caught:
            store.load_task("t000000001")
        store.close()
        assert caught.value.code == "STORE_DAMAGED"

    def test_a_full_disk_keeps_what_was_there(self, filled):
        store = open_store(filled)
        pages = store._link().execute("PRAGMA page_count").fetchone()[0]
        store._link().execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(ShunterError) as caught:
            store.record_events([Event(1.0, "note", "me", reason="x" * 100) for _ in range(1000)])
        assert (caught.value.code, bool(caught.value.hint)) == ("DISK_FULL", True)
        assert store.events_since(0) == []
        assert len(store.list_tasks()) == 40
        store.close()

    @pytest.mark.parametrize("released", [None, RELEASED[0]], ids=["new", "of the first schema"])
    def test_a_store_that_found_no_room_opens_once_there_is_some(self, tmp_path, released):
        """Whatever the room: it is whole, or DISK_FULL and nothing is lost by that."""
        disk, told = tmp_path / "disk", set()
        with small_disk(disk, "12m"):
            for left_kib in range(0, 256, 8):
                path = str(disk / str(left_kib) / "store.db")
                if released is not None:
                    os.mkdir(os.path.dirname(path))
                    shutil.copy(released, path)
                empty = fill(disk, left_kib=left_kib)
                try:
                    open_store(path).close()
                    told.add("room")
                except ShunterError as exc:
                    told.add(exc.code)
                empty()
                store = open_store(path)
                assert bool(store.list_tasks()) == (released is not None)
                assert store._link().execute("PRAGMA integrity_check").fetchone()[0] == "ok"
                store.close()
                assert not list(disk.rglob("*.new*"))
        assert told == {"room", "DISK_FULL"}

    def test_a_lock_that_is_held_too_long(self, filled, monkeypatch):
        monkeypatch.setattr(file, "BUSY_TIMEOUT_S", 0.01)
        holder = file.connect(filled)
        holder.execute("BEGIN IMMEDIATE")
        store = open_store(filled)
        with pytest.raises(ShunterError, match="locked") as caught:
            store.record_session("t000000001", "s")
        assert caught.value.code == "STORE_UNAVAILABLE"
        holder.close()
        store.close()


class TestMigrations:
    @pytest.mark.parametrize("released", RELEASED, ids=lambda path: path.name)
    def test_a_file_of_every_released_schema_opens(self, released, tmp_path):
        place = str(tmp_path / "store.db")
        shutil.copy(released, place)
        store = open_store(place)
        task = store.find_task("t")
        assert (task.title, task.state) == ("kept", TaskState.OPEN)
        assert store.load_turns(task.id)[0].outcome.outcome == "done"
        assert store.load_project(task).worktree == "/home/me/\udcff"
        assert [event.to_state for event in store.events_since(0)][-1] == "open"
        store.close()

    def test_there_is_a_file_of_every_schema(self):
        assert [path.name for path in RELEASED] == [
            f"store-schema-{number}.db" for number in range(1, len(load_migrations()) + 1)
        ]

    def test_migrating_twice_is_harmless_and_a_failing_script_leaves_the_former_schema(self, filled):
        link = file.connect(filled)
        file.migrate(link, filled)
        scripts = [*load_migrations(), "CREATE TABLE later (x);\nCREATE TABLE tasks (x);\n"]
        with pytest.raises(sqlite3.Error):
            file.migrate(link, filled, scripts=scripts)
        assert file.read_version(link) == len(scripts) - 1
        scripts[-1] = "-- One; two.\nCREATE TABLE later (x);\nCREATE TABLE after (x);\n"
        file.migrate(link, filled, scripts=scripts)
        assert file.read_version(link) == len(scripts)
        link.close()
        refused("STORE_NEWER", filled)

    def test_a_reader_does_not_migrate(self, filled, monkeypatch):
        monkeypatch.setattr(
            "shunter.store.sqlite.load_migrations", lambda: [*load_migrations(), "CREATE TABLE later (x);"]
        )
        refused("STORE_UNAVAILABLE", filled, readonly=True)
        store = open_store(filled)
        assert len(store.list_tasks()) == 40
        store.close()


class TestLocks:
    def test_every_write_happens_under_a_lock_taken_first(self, path):
        """Lesson 1: no deferred transaction, and nothing that writes outside of one."""
        os.mkdir(os.path.dirname(path))
        said = []
        store = open_store(path, trace=said.append)
        run_through(store)
        store.close()
        inside = False
        for statement in said:
            word = statement.lstrip().split()[0].upper()
            if word == "BEGIN":
                assert statement == "BEGIN IMMEDIATE"
                inside = True
            elif word in ("COMMIT", "ROLLBACK"):
                inside = False
            elif word in ("INSERT", "UPDATE", "DELETE", "CREATE"):
                assert inside, statement
        assert said.count("BEGIN IMMEDIATE") > 10

    def test_no_module_begins_a_transaction_by_other_means(self):
        folder = Path(file.__file__).parent
        for module in folder.glob("*.py"):
            text = module.read_text()
            assert len(re.findall(r'"BEGIN', text)) == (1 if module.name == "file.py" else 0)
            assert "executescript" not in text.replace("executescript() would", "")


def run_through(store):
    """Every writing call once."""
    from shunter.model.records import Owner

    owner = Owner("me", "h", "b", 1)
    term = store.take_leadership(owner, now=1.0, dead=lambda _: None)
    store.renew_leadership(owner, term, now=2.0)
    task, turn, row, project = a_task(1)
    store.add_task(task, turn, row, project)
    store.claim_row(turn.id, host="local", attempt_id="a1", owner="me", now=3.0)
    store.return_row(turn.id, "a1", Step.CLAIMED, actor="me", now=4.0, reason_code="CAPACITY_BUSY")
    store.claim_row(turn.id, host="local", attempt_id="a2", owner="me", now=5.0)
    store.move_turn(turn.id, "a2", Step.CLAIMED, Step.LEASED, actor="me", now=6.0)
    store.mark_uncertain(turn.id, "a2", True, actor="me", now=6.0)
    store.request_cancel(task.id, actor="me", now=6.0)
    end = {"state": TurnState.CANCELLED, "task_state": TaskState.OPEN, "actor": "me", "now": 7.0}
    store.settle_turn(turn.id, "a2", Step.LEASED, **end)
    store.record_session(task.id, "s")
    store.mark_fetched(task.id, "a" * 40, ref="refs/x", actor="me", now=8.0)
    follow = Turn(f"{task.id}-2", task.id, 2, TurnState.QUEUED, Step.WAITING, 9.0)
    store.add_turn(follow, Row(follow.id, task.id, "s", Requirements("exec")), actor="me")
    store.settle_turn(follow.id, None, Step.WAITING, **end)
    store.close_task(task.id, actor="me", reason="r", now=10.0)
    store.record_events([Event(1.0, "note", "me")])
    store.resign_if_idle(owner, term)


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("big") / "store.db")
    store = open_store(place)
    store.add_task(*a_task(0))
    link = store._link()
    for table, key in (("tasks", "id"), ("turns", "id"), ("queue", "turn_id")):
        names = [row[1] for row in link.execute(f"PRAGMA table_info({table})") if row[1] not in ("seq", key)]
        copied = ", ".join(names).replace("task_id", "task_id")
        values = copied.replace("task_id", "printf('t%09d', n.value)")
        ids = "printf('t%09d', n.value)" + ("" if table == "tasks" else " || '-1'")
        link.execute(
            f"WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 9999) "
            f"INSERT INTO {table} ({key}, {copied}) SELECT {ids}, {values} FROM {table}, n"
        )
    link.execute("ANALYZE")
    yield store
    store.close()


class TestPlans:
    """The cost of reading does not grow with the store: with 10,000 tasks no query walks a whole table."""

    WHOLE = {
        "count_tasks": "the count of all; it walks an index only",
        "read_leader": "one row",
        "list_drains": "a few hosts at most",
        "load_open_turns": "it is meant to give them all",
        "has_open_turns": "it stops at the first",
    }

    @pytest.mark.parametrize("name", sorted(name for name, text in load_queries().items() if text.startswith("SELECT")))
    def test_no_query_walks_a_table_or_sorts_one(self, big, name):
        text = load_queries()[name]
        values = dict.fromkeys(re.findall(r":(\w+)", text), "x") | {
            "limit": 10,
            "per_shape": 3,
            "task_ids": "[]",
            "seq": 1,
        }
        plan = [row[3] for row in big._link().execute("EXPLAIN QUERY PLAN " + text, values)]
        for line in plan:
            if name in self.WHOLE:
                continue
            scan = line.startswith("SCAN") and not re.search(
                r"json_each|wanted|SCAN shapes|queue_in_order|turns_under_way|CONSTANT", line
            )
            assert not scan, plan
            if name != "waiting_rows":  # sorts the few it has chosen
                assert "TEMP B-TREE" not in line or name == "load_turns_under_way", plan

    def test_the_answers_are_those_of_a_small_store(self, big):
        assert len(big.list_tasks(limit=50)) == 50
        assert len(big.waiting_rows(now=0.0, per_shape=7)) == 7
        assert big.count_tasks() == {TaskState.QUEUED: 10000}

    def test_a_claim_reads_a_few_rows_only(self, big):
        turn = big.waiting_rows(now=0.0, per_shape=1)[0]
        claimed = big.claim_row(turn.turn_id, host="local", attempt_id="a1", owner="me", now=1.0)
        assert [each.id for each in big.open_turns(waiting=False)] == [claimed.id]


class TestQueries:
    def test_every_query_has_a_sentence_and_every_named_query_exists(self):
        folder = Path(file.__file__).parent
        for sql in folder.glob("sql/*.sql"):
            for part in sql.read_text().split("-- name: ")[1:]:
                name, sentence, *_ = part.splitlines()
                assert sentence.startswith("-- "), f"{sql.name}: {name}"
        code = "".join(module.read_text() for module in folder.glob("*.py"))
        used = set(re.findall(r'"([a-z_]+)"', code))
        assert set(load_queries()) <= used

    def test_the_words_of_the_checks_are_those_of_the_tables_of_states(self):
        script = load_migrations()[0]
        for kind in (TaskState, TurnState, Step):
            assert ", ".join(f"'{each}'" for each in kind) in script

    def test_events_cannot_be_changed(self, filled):
        store = open_store(filled)
        store.record_events([Event(1.0, "note", "me")])
        for statement in ("UPDATE events SET kind = 'x'", "DELETE FROM events"):
            with pytest.raises(sqlite3.IntegrityError, match="append only"):
                store._link().execute(statement)
        store.close()

    def test_no_column_of_the_queue_could_hold_a_secret(self, filled):
        """P9: ids, summary, wishes, times, owner, codes."""
        link = sqlite3.connect(filled)
        names = [row[1] for row in link.execute("PRAGMA table_info(queue)")]
        wishes = json.loads(link.execute("SELECT requirements FROM shapes").fetchone()[0])
        link.close()
        assert names == [
            *("seq", "turn_id", "task_id", "shape_id", "priority", "summary", "not_before", "owner", "error_code"),
        ]
        assert set(wishes) == set(Requirements.__dataclass_fields__)
