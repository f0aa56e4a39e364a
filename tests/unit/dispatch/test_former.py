"""First turns that wait although a host has accepted them: who is asked, and what is held back meanwhile."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from shunter.dispatch.former import ASKED_AT_ONCE, FormerRuns
from shunter.wire.errors import ShunterError
from shunter.wire.messages import Jobs


class AHost:
    def __init__(self, name, known=(), *, error=None):
        self.name, self.known, self.error = name, known, error
        self.client = SimpleNamespace(call=self.call)
        self.may_answer = threading.Event()
        self.asked = []

    def call(self, method, ask):
        self.asked.append(len(ask.ids))
        assert method == "job.known" and self.may_answer.wait(30)
        if self.error is not None:
            raise self.error
        return Jobs(tuple(each for each in ask.ids if each in self.known))


def answered(host, news):
    host.may_answer.set()
    assert news.acquire(timeout=30)


def test_everything_is_held_until_each_host_has_answered_or_failed():
    news = threading.Semaphore(0)
    hosts = [AHost("alpha", {"t1-1"}), AHost("beta", error=ShunterError("HOST_UNREACHABLE", "away"))]
    former = FormerRuns(["t1-1", "t2-1"], news.release)
    assert former.held(hosts) == former.held(hosts) == {"t1-1", "t2-1"}
    answered(hosts[0], news)
    assert former.held(hosts) == {"t1-1", "t2-1"}
    assert former.take_found() == {"t1-1": "alpha"} and former.take_found() == {}
    answered(hosts[1], news)
    assert former.held(hosts) == frozenset()
    assert [host.asked for host in hosts] == [[2], [2]], "each host once"


def test_nobody_is_asked_when_nothing_was_left():
    host = AHost("alpha")
    assert FormerRuns([], lambda: None).held([host]) == frozenset() and host.asked == []


def test_many_are_asked_for_in_messages_that_a_host_takes():
    news = threading.Semaphore(0)
    host = AHost("alpha")
    former = FormerRuns([f"t{number}-1" for number in range(ASKED_AT_ONCE + 1)], news.release)
    former.held([host])
    answered(host, news)
    assert host.asked == [ASKED_AT_ONCE, 1]
