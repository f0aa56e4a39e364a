"""The dispatcher's one word to whoever started it."""

from __future__ import annotations

import os

from shunter.dispatch.main import teller


def test_it_is_said_once_and_into_no_other_file(tmp_path):
    told, tell = os.pipe()
    say = teller(tell)
    say("ok")
    other = os.open(tmp_path / "store.db", os.O_RDWR | os.O_CREAT)
    assert other == tell, "the number is free again and taken by what is opened next"
    say("DISK_FULL: no room")
    assert os.read(told, 100) == b"ok" and os.fstat(other).st_size == 0
    os.close(told)
    os.close(other)
