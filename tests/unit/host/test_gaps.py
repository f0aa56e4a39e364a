"""Lines of an output of which a part was not kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from shunter.agents.contract import Gap
from shunter.host.logs import lost_bytes, read_lines


@pytest.mark.parametrize(
    ("pieces", "total", "lines", "lost"),
    [
        ({"stdout": b"a\nb\n"}, 4, [b"a", b"b"], 0),
        ({"stdout": b"a\nb", "stdout@3": b"c\nd"}, 6, [b"a", b"bc", b"d"], 0),
        ({"stdout": b"a\nb", "stdout@10": b"c\nd\n"}, 14, [b"a", b"b", Gap(), b"d"], 7),
        ({"stdout": b"a\n", "stdout@10": b"the rest of a line"}, 28, [b"a", Gap()], 8),
        ({"stdout": b"a\n"}, 9, [b"a", Gap()], 7),
        ({"stdout@5": b"b\nc\n"}, 9, [Gap(), b"c"], 5),
        ({}, 5, [Gap()], 5),
        ({}, 0, [], 0),
    ],
)
def test_a_gap_stands_where_bytes_are_missing(
    tmp_path: Path, pieces: dict[str, bytes], total: int, lines: list[bytes], lost: int
) -> None:
    for name, data in pieces.items():
        (tmp_path / name).write_bytes(data)
    path = str(tmp_path / "stdout")
    found = list(read_lines(path, total=total))
    assert found == lines
    assert [isinstance(each, Gap) for each in found] == [isinstance(each, Gap) for each in lines]
    assert lost_bytes(path, total) == lost
