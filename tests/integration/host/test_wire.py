"""One session of the helper: noise before it, other versions, broken messages, many calls at once (design 8)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shunter.fleet import client as fleet_client
from shunter.fleet.client import HostClient
from shunter.fleet.transport import LocalTransport
from shunter.wire import rpc
from shunter.wire.errors import ShunterError
from shunter.wire.messages import MAGIC, PROTOCOL, AttemptRef, FactsAsk, LeaseRef

from .world import HELPER_PYTHON, World, code_of, is_alive, stop, until


class Wrapped(LocalTransport):
    """The local transport behind a shell line, in which `$0 $@` stands for the helper and $NONCE for home's nonce."""

    def __init__(self, data_root: Path, line: str) -> None:
        super().__init__("wrapped", data_root, python=HELPER_PYTHON)
        self.line = line

    def session_argv(self, nonce: str) -> list[str]:
        return ["sh", "-c", f"NONCE={nonce}; {self.line}", *super().session_argv(nonce)]


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[str], HostClient]]:
    clients: list[HostClient] = []

    def through(line: str) -> HostClient:
        clients.append(HostClient(Wrapped(tmp_path / "data", line)))
        return clients[-1]

    yield through
    for client in clients:
        client.close()


HELLO = (
    '{"version":"9","digest":"","host_id":"h","os":"linux","boot_id":"b","python":"3","git":"2","data_root":"/",'
    '"pid":1}'
)


@pytest.mark.parametrize(
    "noise",
    [
        "echo Welcome to this machine",
        "printf 'no newline: '",
        f"printf '{MAGIC} without a newline '",
        f"echo '{MAGIC} {PROTOCOL} 0123456789abcdef0123456789abcdef {HELLO}'",
        """printf '{"jsonrpc":"2.0" '""",
        """echo '{"jsonrpc":"2.0","id":null}'""",
        "yes noise | head -c 60000",
        "head -c 60000 /dev/zero",
        "printf '\\377\\376\\033[2J\\n'",
        "echo on stderr >&2",
    ],
)
def test_noise_before_the_greeting_is_skipped(connect: Callable[[str], HostClient], noise: str) -> None:
    client = connect(f'{noise}; exec "$0" "$@"')
    assert client.session().hello.pid > 1
    assert client.call("host.facts", FactsAsk()).slots_used == 0


def test_too_much_noise_is_no_greeting(connect: Callable[[str], HostClient]) -> None:
    error = code_of(connect('yes "a banner without end"').session)
    assert error.code == "HOST_UNREACHABLE"
    assert "banner without end" in error.text


@pytest.mark.parametrize("spoken", ["2", "999", "x"])
def test_another_protocol_version_is_outdated(connect: Callable[[str], HostClient], spoken: str) -> None:
    error = code_of(connect(f"echo {MAGIC} {spoken} $NONCE '{HELLO}'; cat").session)
    assert error.code == "HOST_OUTDATED"
    assert error.hint


def test_a_greeting_with_another_nonce_is_none(
    connect: Callable[[str], HostClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_client, "HELLO_LIMIT_S", 0.3)
    error = code_of(connect(f"echo {MAGIC} {PROTOCOL} 0123456789abcdef0123456789abcdef '{HELLO}'; exec cat").session)
    assert error.code == "HOST_UNREACHABLE"


def test_a_greeting_that_is_not_understood(connect: Callable[[str], HostClient]) -> None:
    error = code_of(connect(f"echo {MAGIC} {PROTOCOL} $NONCE '{{}}'; exec cat").session)
    assert error.code == "PROTOCOL"


def test_a_helper_that_cannot_start_says_why(connect: Callable[[str], HostClient]) -> None:
    error = code_of(connect("echo 'python: command not found' >&2; exit 127").session)
    assert error.code == "HOST_UNREACHABLE" and "command not found" in error.text


def test_a_failed_greeting_leaves_no_process(connect: Callable[[str], HostClient], tmp_path: Path) -> None:
    code_of(connect(f"echo $$ > {tmp_path}/pid; echo {MAGIC} 2 $NONCE '{HELLO}'; exec cat").session)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not is_alive(pid), what="its end")


def test_noise_after_the_greeting_ends_the_session_and_the_next_call_opens_another(
    connect: Callable[[str], HostClient], tmp_path: Path
) -> None:
    client = connect(f'(until [ -e {tmp_path}/go ]; do sleep 0.01; done; echo "cron: done") & exec "$0" "$@"')
    session = client.session()
    (tmp_path / "go").touch()
    until(lambda: session.ended, what="the end of the session")
    error = code_of(lambda: session.call("host.facts", FactsAsk(), limit_s=10))
    assert error.code == "HOST_UNREACHABLE" and "cron: done" in error.text
    client.transport.line = 'exec "$0" "$@"'  # type: ignore[attr-defined]
    assert client.call("host.facts", FactsAsk()).slots_used == 0


# --- raw messages ---------------------------------------------------------------------------------------------------


class Raw:
    """A session spoken to by hand."""

    def __init__(self, data_root: Path) -> None:
        transport = LocalTransport("raw", data_root, python=HELPER_PYTHON)
        transport.prepare()
        argv = transport.session_argv("0" * 32)
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert rpc.parse_hello(self.read(), "0" * 32)

    def read(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def say(self, line: bytes) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.read())
        assert isinstance(answer, dict)
        return answer


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Raw]:
    session = Raw(tmp_path / "data")
    yield session
    stop(session.process)


FACTS = {"jsonrpc": "2.0", "id": 7, "method": "host.facts", "params": {"programs": []}}


@pytest.mark.parametrize(
    ("message", "number"),
    [
        (b"garbage", None),
        (b"", None),
        (b"\xff\xfe\x00", None),
        (b"[]", None),
        (b"[" * 100_000, None),
        (b"17", None),
        (b'{"jsonrpc":"1.0","id":7,"method":"host.facts"}', None),
        (json.dumps({**FACTS, "extra": 1}).encode(), None),
        (json.dumps({**FACTS, "id": "7"}).encode(), None),
        (json.dumps({**FACTS, "id": None}).encode(), None),
        (json.dumps({**FACTS, "method": "host.explode"}).encode(), 7),
        (json.dumps({**FACTS, "method": "ledger.close"}).encode(), 7),
        (json.dumps({**FACTS, "method": "__init__"}).encode(), 7),
        (json.dumps({**FACTS, "params": {"programs": [], "more": 1}}).encode(), 7),
        (json.dumps({**FACTS, "params": {"programs": "git"}}).encode(), 7),
        (json.dumps({**FACTS, "params": [1]}).encode(), 7),
        (
            json.dumps({**FACTS, "method": "attempt.status", "params": {"attempt_id": "../x", "job_id": "a"}}).encode(),
            7,
        ),
        (
            json.dumps(
                {**FACTS, "method": "log.read", "params": {"attempt_id": "a", "stream": "../spec", "offset": 0}}
            ).encode(),
            7,
        ),
    ],
    ids=lambda value: repr(value[:60]) if isinstance(value, bytes) else "",
)
def test_a_message_that_breaks_a_rule_is_refused_and_the_session_goes_on(
    raw: Raw, message: bytes, number: int | None
) -> None:
    answer = raw.say(message)
    if "result" in answer:  # an id is checked where it is used; an unknown one names nothing
        assert answer["result"]["state"] == "unknown"
    else:
        assert answer["error"]["data"]["code"] == "PROTOCOL"
        assert answer["id"] == number
    assert raw.say(json.dumps(FACTS).encode())["result"]["slots_used"] == 0


def test_a_message_over_a_mebibyte_ends_the_session_in_so_many_words(raw: Raw) -> None:
    answer = raw.say(b"x" * ((1 << 20) + 10))
    assert answer["error"]["data"]["code"] == "PROTOCOL" and "1 MiB" in answer["error"]["message"]
    assert raw.read() == b""
    assert raw.process.wait(timeout=60) == 0


def test_home_sends_no_message_over_a_mebibyte(world: World) -> None:
    attempt = world.prepare("true", prompt="\x01" * 400_000)
    assert code_of(lambda: world.accept(attempt)).code == "PROTOCOL"
    assert world.status(attempt).state == "unknown"


def test_the_end_of_stdin_ends_the_session_and_its_bell(raw: Raw, tmp_path: Path) -> None:
    until(lambda: list((tmp_path / "data" / "run").glob("*.bell")), what="a bell")
    assert raw.process.stdin is not None
    raw.process.stdin.close()
    assert raw.process.wait(timeout=60) == 0
    until(lambda: not list((tmp_path / "data" / "run").iterdir()), what="its fork server, which goes after it, gone")
    assert not list((tmp_path / "data").glob("ledger.db-*"))


def test_a_session_takes_down_the_bells_of_killed_ones(world: World) -> None:
    bells = Path(world.layout.run)
    world.client.session()
    (ours,) = until(lambda: list(bells.glob("*.bell")), what="a bell")
    os.mkfifo(bells / "1.bell")  # nobody listens there, though the process lives
    world.new_client().session()
    until(lambda: len(list(bells.glob("*.bell"))) == 2 and not (bells / "1.bell").exists(), what="a swept directory")
    assert ours.exists()


# --- many -----------------------------------------------------------------------------------------------------------


def test_fifty_calls_at_once_over_two_sessions(world: World) -> None:
    attempt, status = world.run("sh", "-c", "echo out; echo new > new.txt")
    other = world.new_client()
    ready = threading.Barrier(50)

    def ask(number: int) -> Any:
        ready.wait(timeout=60)
        client = other if number % 2 else world.client
        if number % 5 == 0:
            return client.call("host.facts", FactsAsk(programs=("git",))).programs["git"] is not None
        return client.call("attempt.status", attempt.ref) == status

    with ThreadPoolExecutor(50) as pool:
        assert all(pool.map(ask, range(50)))


def test_both_sessions_are_told_what_changed(world: World) -> None:
    notes: list[Any] = []
    transport = LocalTransport("local", world.data_root, python=world.python)
    other = HostClient(transport, lambda method, params: notes.append((method, params)))
    world.clients.append(other)
    other.session()
    attempt, _ = world.run("true")
    told = ("attempt.changed", {"attempt_id": attempt.id})
    until(lambda: told in notes and told in world.notes, what="both")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_listener_with_a_fault_leaves_no_call_waiting(world: World) -> None:
    def fail(method: str | None, params: dict[str, Any]) -> None:
        raise RuntimeError(f"a fault of the test's own: {method}")

    transport = LocalTransport("local", world.data_root, python=world.python)
    client = HostClient(transport, fail)
    world.clients.append(client)
    session = client.session()
    world.run("true")
    until(lambda: session.ended, what="the end of its session")
    assert code_of(lambda: session.call("host.facts", FactsAsk(), limit_s=30)).code == "HOST_UNREACHABLE"


def test_a_call_that_no_answer_reaches_in_time(connect: Callable[[str], HostClient]) -> None:
    client = connect(f"echo {MAGIC} {PROTOCOL} $NONCE '{HELLO}'; while read -r line; do :; done")
    error = code_of(lambda: client.call("host.facts", FactsAsk(), limit_s=0.2))
    assert error.code == "DEADLINE" and error.retryable


def test_a_helper_is_started_at_most_every_so_often(connect: Callable[[str], HostClient], tmp_path: Path) -> None:
    client = connect(f"echo x >> {tmp_path}/starts; exit 1")
    for _ in range(4):
        with pytest.raises(ShunterError):
            client.call("lease.renew", LeaseRef("a", "b"))
        with pytest.raises(ShunterError):
            client.call("attempt.status", AttemptRef("a", "a"))
        if client._failures > 3:
            break
    assert (tmp_path / "starts").read_text().count("x") == client._failures


def test_a_program_that_is_not_there_is_a_host_that_cannot_be_reached(tmp_path: Path) -> None:
    client = HostClient(LocalTransport("local", tmp_path / "data", python=str(tmp_path / "no-python")))
    error = code_of(client.session)
    assert error.code == "HOST_UNREACHABLE" and "no-python" in error.text


def test_a_shell_line_for_git_names_the_helper(tmp_path: Path) -> None:
    transport = LocalTransport("local", tmp_path / "a directory", python=HELPER_PYTHON)
    transport.prepare()
    words = shlex.split(transport.pack_command("receive-pack", "--attempt", "a-1-b", "--token", "t"))
    assert words[0] == HELPER_PYTHON
    assert words[-6:] == ["--data-root", str(tmp_path / "a directory"), "--attempt", "a-1-b", "--token", "t"]


def test_a_session_makes_no_ledger_anew_that_was_purged_under_it(world: World) -> None:
    world.client.call("host.facts", FactsAsk())
    for path in world.data_root.glob("ledger.db*"):
        path.unlink()
    shutil.rmtree(world.data_root / "jobs")
    assert code_of(lambda: world.client.call("host.facts", FactsAsk())).code == "LEDGER_UNAVAILABLE"
    assert not list(world.data_root.glob("ledger.db*"))


def test_a_host_that_did_not_answer_is_left_alone_for_a_while_unless_somebody_knows_better(
    connect: Callable[[str], HostClient], tmp_path: Path
) -> None:
    client = connect(f'test -e {tmp_path}/up || exit 255; exec "$0" "$@"')
    while client.broken_for_s < 2:
        assert code_of(client.session).text
    (tmp_path / "up").touch()
    assert code_of(client.session).text
    client.forget_pause()
    assert client.session().hello.host_id
    assert client.broken_for_s == 0
