"""Lines out of the pieces of a log, also of one that stops in the middle of a line."""

from __future__ import annotations

import pytest

from shunter.service.logs import Begun, Piece, lines_of

PAUSE = b""


def pieces(*data: bytes) -> list[Piece]:
    return [Piece(0, each, 0) for each in data]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ([b"a\nb", b"c\n"], [b"a", b"bc"]),
        ([b"a\n", PAUSE, PAUSE], [b"a"]),
        ([b"sure? ", PAUSE, PAUSE, b"y", b"es\nnext\n"], [Begun(b"sure? "), b"yes", b"next"]),
        ([b"sure? ", PAUSE, b"really? ", PAUSE, b"\n"], [Begun(b"sure? "), Begun(b"really? "), b""]),
        ([b"sure? ", PAUSE], [Begun(b"sure? "), b""]),
        ([b"sure? ", PAUSE, b"y"], [Begun(b"sure? "), b"y"]),
        ([b"gr\xc3", PAUSE, b"\xbcn\n"], [Begun(b"gr"), "\u00fcn".encode()]),
        ([b"\xc3", PAUSE, b"\xbc\n"], ["\u00fc".encode()]),
    ],
)
def test_a_line_that_stops_is_told_once(data: list[bytes], lines: list[bytes]) -> None:
    found = list(lines_of(iter(pieces(*data)), begun=True))
    assert found == lines
    assert [isinstance(each, Begun) for each in found] == [isinstance(each, Begun) for each in lines]


def test_whole_lines_alone_are_told_where_a_part_means_nothing() -> None:
    assert list(lines_of(iter(pieces(b"a", PAUSE, b"b\n")))) == [b"ab"]


def test_a_gap_ends_the_line_that_was_begun() -> None:
    gap = Piece(9, b"c\n", 7)
    found = list(lines_of(iter([*pieces(b"a", PAUSE), gap]), begun=True))
    assert found == [Begun(b"a"), b"", Piece(9, b"", 7), b"c"]
