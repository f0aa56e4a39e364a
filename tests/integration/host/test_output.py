"""What an agent prints: never in its way, bounded on disk and in memory, readable by offset with its gaps (T16, S6)."""

from __future__ import annotations

import base64
import dataclasses
import re
import sys
from pathlib import Path

from .world import LIMITS, World

SMALL = dataclasses.replace(LIMITS, output_cap_bytes=300_000, tail_bytes=50_000)
PYTHON = (sys.executable, "-I", "-S", "-c")


def pss_kib(pid: int, field: str = "Pss") -> int:
    found = re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found
    return int(found.group(1))


def test_two_gigabytes_pass_through_and_head_and_tail_are_kept(world: World) -> None:
    code = "import os\nblock = (b'%063d\\n' * 1024) % tuple(range(1024))\nfor _ in range(32768): os.write(1, block)\n"
    limits = dataclasses.replace(LIMITS, output_cap_bytes=3 << 20, tail_bytes=1 << 20)
    attempt = world.start(*PYTHON, code + "import time; time.sleep(600)", limits=limits)
    world.wait(attempt, "launched")
    pid = world.supervisor(attempt)["pid"]
    peak = 0
    total = 32768 * 65536
    while world.read_chunk(attempt, "stdout", total - 1, 1).next_offset < total:
        peak = max(peak, pss_kib(pid))
    world.cancel(attempt)
    end = world.wait(attempt).end
    assert end is not None
    assert end.stdout_bytes == total
    assert peak < 8 << 10, f"the supervisor took {peak} KiB"
    kept = sum(path.stat().st_size for path in world.job(attempt).glob("stdout*"))
    assert kept <= (3 << 20) + 2 * (1 << 20)
    data, gaps = world.read_log(attempt)
    assert len(gaps) == 1
    (after, missing), head = gaps[0], 3 << 20
    assert after == head + missing
    assert len(data) + missing == total
    assert data[-64:] == b"%063d\n" % 1023
    assert all(line == b"%063d" % (n % 1024) for n, line in enumerate(data[:head].splitlines()))
    assert len(data) - head >= 1 << 20


def test_a_read_inside_the_gap_goes_on_behind_it(world: World) -> None:
    attempt, _ = world.run(*PYTHON, "import os; [os.write(1, b'%09d\\n' % n) for n in range(100_000)]", limits=SMALL)
    chunk = world.read_chunk(attempt, "stdout", 400_000)
    assert chunk.offset == 400_000 + chunk.gap_bytes
    data = base64.b64decode(chunk.data)
    first = data.split(b"\n")[1]
    assert int(first) * 10 == chunk.offset + data.index(first)
    assert world.read_chunk(attempt, "stdout", 1_000_000).ended
    assert world.read_chunk(attempt, "stdout", 7_000_000).ended


def test_both_streams_share_the_cap_and_each_has_its_tail(world: World) -> None:
    code = "import os\nfor n in range(40_000): os.write(1, b'out %05d\\n' % n); os.write(2, b'err %05d\\n' % n)\n"
    attempt, status = world.run(*PYTHON, code, limits=SMALL)
    assert status.end is not None and status.end.stdout_bytes == status.end.stderr_bytes == 400_000
    for stream, word in (("stdout", b"out"), ("stderr", b"err")):
        data, gaps = world.read_log(attempt, stream)
        assert data.startswith(word + b" 00000\n") and data.endswith(word + b" 39999\n")
        assert sum(length for _, length in gaps) + len(data) == 400_000
    heads = sum((world.job(attempt) / name).stat().st_size for name in ("stdout", "stderr"))
    assert heads == 300_000


def test_output_without_a_newline_binary_and_terminal_escapes_come_back_byte_for_byte(world: World) -> None:
    text = bytes(range(256)) * 300 + b"\x1b]0;title\x07\x1b[2J\r\x00\xff\xfe no newline at the end"
    code = f"import os; os.write(1, {bytes(range(256))!r} * 300); os.write(1, {text[76800:]!r})"
    attempt, status = world.run(*PYTHON, code)
    assert status.end is not None and status.end.outcome == "no_changes"
    assert world.read_log(attempt) == (text, [])


def test_a_line_of_fifty_megabytes_blocks_nothing(world: World) -> None:
    code = "import os\nfor _ in range(800): os.write(1, b'x' * 65536)\nos.write(1, b'\\nlast line\\n')\n"
    rule = {"session_marker": '"thread.started"', "session_key": "thread_id"}
    attempt, status = world.run(*PYTHON, code, **rule)
    assert status.end is not None and status.end.stdout_bytes == 800 * 65536 + 11
    data, _ = world.read_log(attempt)
    assert data.endswith(b"x\nlast line\n")
    assert status.session_id is None


def test_the_session_id_is_found_though_it_comes_in_pieces(world: World) -> None:
    line = '{"type":"thread.started", "thread_id" : "01a2-b736"}\\n'
    code = f"import os, time\nfor c in '{line}': os.write(1, c.encode()); time.sleep(0.002)\ntime.sleep(600)\n"
    attempt = world.start(*PYTHON, code, session_marker='"thread.started"', session_key="thread_id")
    while world.status(attempt).session_id is None:
        pass
    assert world.status(attempt).session_id == "01a2-b736"
    assert world.status(attempt).state == "launched"
    world.cancel(attempt)
    assert world.wait(attempt).session_id == "01a2-b736"


def test_a_mention_of_a_session_binds_nothing(world: World) -> None:
    mentions = (
        'a banner: {"type":"thread.started","thread_id":"banner"}',
        r'{"type":"item","text":"{\"type\":\"thread.started\",\"thread_id\":\"quoted\"}"}',
        '{"type":"thread.started","thread_id":17}',
        '{"type":"thread.started","thread_id":"../../etc"}',
        '{"type":"thread.started","thread_id":"cut off',
    )
    rule = {"session_marker": '"thread.started"', "session_key": "thread_id"}
    _, status = world.run("printf", "%s\\n", *mentions, **rule)
    assert status.session_id is None
    right = '{"type":"thread.started","thread_id":"right"}'
    _, status = world.run("printf", "%s\\n", *mentions, right, right.replace("right", "second"), **rule)
    assert status.session_id == "right"


def test_a_follower_hears_that_output_grew_until_the_turn_is_over(world: World) -> None:
    from shunter.wire.messages import FollowAsk

    from .world import until

    attempt = world.start(*PYTHON, "import time\nfor n in range(20): print(n, flush=True); time.sleep(0.02)\n")
    world.client.call("log.follow", FollowAsk(attempt.id, "stdout"))
    world.wait(attempt)
    size = 10 * 2 + 10 * 3
    until(lambda: ("log.grew", {"attempt_id": attempt.id, "stream": "stdout", "size": size}) in world.notes, what="it")
    assert ("attempt.changed", {"attempt_id": attempt.id}) in world.notes
