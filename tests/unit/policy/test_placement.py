"""Placement and claims: the table of reasons, the order, and laws over generated pools."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.model.records import Requirements, Row
from shunter.policy.claim import plan_claims
from shunter.policy.placement import HostView, decide_placement, find_twins, rank_key, reason_against

NOW = 1000.0


def a_host(name="a", slots=1, **changes):
    return HostView(name=name, slots=slots, **changes)


def a_row(number=1, *, pinned_host=None, not_before=None, **wishes):
    requirements = Requirements(**{"agent": "exec", **wishes})
    return Row(
        f"t{number}-1", f"t{number}", "s", requirements, pinned_host=pinned_host, not_before=not_before, seq=number
    )


def placed(row, *hosts):
    return decide_placement(row, hosts, now=NOW)


@pytest.mark.parametrize(
    ("row", "host", "code"),
    [
        (a_row(), a_host(), None),
        (a_row(pinned_host="b"), a_host(), "PINNED"),
        (a_row(pinned_host="a"), a_host(), None),
        (a_row(), a_host(enabled=False), "DISABLED"),
        (a_row(), a_host(outdated=True), "HOST_OUTDATED"),
        (a_row(), a_host(reachable=False), "HOST_UNREACHABLE"),
        (a_row(), a_host(held_back="drained"), "HELD_BACK"),
        (a_row(), a_host(agents=frozenset({"codex"})), "AGENT_MISSING"),
        (a_row(), a_host(agents=frozenset({"exec"})), None),
        (a_row(), a_host(agents=frozenset(), signed_out=frozenset({"exec"})), "AGENT_SIGNED_OUT"),
        (a_row(agent="codex@work"), a_host(agents=frozenset({"codex"})), "AGENT_MISSING"),
        (a_row(agent="codex@work"), a_host(agents=frozenset({"codex@work"})), None),
        (a_row(agent="codex@work"), a_host(agents=frozenset({"codex@*"})), None),
        (a_row(account="codex"), a_host(stopped={"codex": "why"}), "ACCOUNT_STOPPED"),
        (a_row(account="codex"), a_host(stopped={"codex@work": "why"}, tried={"codex": "why"}), None),
        (a_row(), a_host(stopped={"exec": "why"}), None),
        (a_row(capabilities=("gpu",)), a_host(), "CAPABILITY_MISSING"),
        (a_row(capabilities=("gpu",)), a_host(capabilities=frozenset({"gpu"})), None),
        (a_row(slots=2), a_host(), "TOO_SMALL"),
        (a_row(), a_host(slots_used=1), "NO_SLOT"),
        (a_row(memory_mb=2000), a_host(memory_mb=1000), "TOO_SMALL"),
        (a_row(memory_mb=600), a_host(memory_mb=1000, memory_reserved_mb=500), "NO_MEMORY"),
        (a_row(memory_mb=600), a_host(memory_available_mb=500), "NO_MEMORY"),
        (a_row(memory_mb=600), a_host(), None),
        (a_row(not_before=NOW + 5), a_host(), "NOT_YET"),
        (a_row(not_before=NOW), a_host(), None),
    ],
)
def test_each_reason(row, host, code):
    reason = reason_against(row, host, now=NOW)
    assert (reason and reason.code) == code
    assert reason is None or reason.words


def test_the_order_of_hosts():
    """Worktree, project, memory, disk, name; a missing fact last, but not disqualified (P2)."""
    row = a_row(worktree_id="w", project_id="p")
    best_first = [
        a_host("z1", had=frozenset({"w"})),
        a_host("z2", had=frozenset({"p"})),
        a_host("z3", memory_available_mb=900, disk_free_mb=1),
        a_host("z4", memory_available_mb=800, disk_free_mb=2),
        a_host("z5", memory_available_mb=800, disk_free_mb=1),
        a_host("z6", memory_available_mb=800),
        a_host("z7", disk_free_mb=9),
        a_host("a8"),
        a_host("a9"),
    ]
    mixed = best_first[:]
    random.Random(7).shuffle(mixed)
    assert sorted(mixed, key=lambda host: rank_key(row, host)) == best_first
    assert placed(row, *mixed).host == "z1"


def test_every_rejection_is_told_in_name_order():
    found = placed(a_row(), a_host("c", enabled=False), a_host("a", slots_used=1), a_host("b"))
    assert found.host == "b"
    assert [(name, reason.code) for name, reason in found.rejected] == [("a", "NO_SLOT"), ("c", "DISABLED")]


def test_no_host_at_all():
    assert placed(a_row()) == placed(a_row(), *[])
    assert placed(a_row()).host is None


def test_two_hosts_of_one_name_are_both_refused():
    found = placed(a_row(), a_host("a"), a_host("a", slots=9), a_host("b"))
    assert found.host == "b"
    assert [(name, reason.code) for name, reason in found.rejected] == [("a", "DUPLICATE")]


def test_two_names_of_one_machine_count_once():
    found = placed(a_row(), a_host("b", host_id="m"), a_host("a", host_id="m"))
    assert found.host == "b"
    assert found.rejected[0][1].words == "it is the same machine as b"


def test_of_two_names_of_one_machine_the_first_keeps_it_whatever_it_does():
    two = [a_host("b", host_id="m", reachable=False, held_back="drained"), a_host("a", host_id="m")]
    assert find_twins(two) == {"a": "b"}
    assert find_twins([replace(two[0], enabled=False), two[1]]) == {}
    assert placed(a_row(pinned_host="a"), *two).host is None


def test_a_task_that_is_pinned_to_a_host_outside_of_the_pool_is_told_so():
    rejected = dict(placed(a_row(pinned_host="gone"), a_host("a")).rejected)
    assert rejected["gone"].code == "HOST_UNKNOWN" and "shunter cancel" in rejected["gone"].words


def claims(rows, *hosts):
    return [(claim.turn_id, claim.host) for claim in plan_claims(rows, hosts, now=NOW).claims]


def test_a_row_that_fits_nowhere_delays_nobody():
    rows = [a_row(1, pinned_host="busy"), a_row(2, slots=9), a_row(3, not_before=NOW + 9), a_row(4), a_row(5)]
    assert claims(rows, a_host("busy", slots_used=1), a_host("free", slots=2)) == [("t4-1", "free"), ("t5-1", "free")]


def test_the_oldest_row_that_a_host_can_take_wins():
    rows = [a_row(1), a_row(2, pinned_host="a"), a_row(3)]
    hosts = [a_host("a", memory_available_mb=1), a_host("b", memory_available_mb=2)]
    assert claims(rows, *hosts) == [("t1-1", "b"), ("t2-1", "a")]


def test_nothing_is_given_twice():
    rows = [a_row(number, memory_mb=400) for number in range(1, 4)]
    assert claims(rows, a_host("a", slots=3, memory_mb=1000)) == [("t1-1", "a"), ("t2-1", "a")]


def test_rows_after_the_last_free_slot_are_not_even_looked_at():
    def rows():
        yield a_row(1)
        yield a_row(2)
        raise AssertionError("read on although nothing is free")

    assert claims(rows(), a_host("a")) == [("t1-1", "a")]


NAMES = st.sampled_from(["a", "b", "c", "d"])
MEGABYTES = st.none() | st.integers(0, 4000)
HOSTS = st.lists(
    st.builds(
        HostView,
        name=NAMES,
        slots=st.integers(0, 3),
        slots_used=st.integers(0, 4),
        memory_mb=MEGABYTES,
        memory_reserved_mb=st.integers(0, 3000),
        memory_available_mb=MEGABYTES,
        disk_free_mb=MEGABYTES,
        host_id=st.none() | st.sampled_from(["m1", "m2", "m3"]),
        enabled=st.sampled_from([True, True, False]),
        reachable=st.sampled_from([True, True, False]),
        outdated=st.sampled_from([False, False, True]),
        held_back=st.sampled_from([None, None, "drained"]),
        agents=st.sampled_from([None, frozenset({"exec"}), frozenset({"codex"})]),
        had=st.sampled_from([frozenset(), frozenset({"w"}), frozenset({"p"})]),
    ),
    max_size=5,
)
ROWS = st.lists(
    st.builds(
        a_row,
        pinned_host=st.none() | NAMES,
        not_before=st.sampled_from([None, NOW - 1, NOW + 1]),
        slots=st.integers(1, 2),
        memory_mb=MEGABYTES,
        worktree_id=st.sampled_from(["w", "v"]),
        agent=st.sampled_from(["exec", "codex"]),
    ),
    max_size=12,
).map(lambda rows: [replace(row, turn_id=f"t{n}-1", task_id=f"t{n}", seq=n) for n, row in enumerate(rows)])


@given(ROWS, HOSTS)
def test_a_plan_never_gives_out_more_than_there_is(rows, hosts):
    plan = plan_claims(rows, hosts, now=NOW).claims
    by_id = {row.turn_id: row for row in rows}
    assert len({claim.turn_id for claim in plan}) == len(plan)
    for host in hosts:
        taken = [by_id[claim.turn_id] for claim in plan if claim.host == host.name]
        if taken:
            assert host.slots_used + sum(row.requirements.slots for row in taken) <= host.slots
            reserved = sum(row.requirements.memory_mb or 0 for row in taken)
            assert host.memory_mb is None or not reserved or host.memory_reserved_mb + reserved <= host.memory_mb
            assert all(row.pinned_host in (None, host.name) for row in taken)
            assert host.enabled
            assert host.reachable


@given(ROWS, HOSTS)
def test_the_first_row_that_fits_anywhere_gets_its_best_host(rows, hosts):
    plan = plan_claims(rows, hosts, now=NOW).claims
    first = next((row for row in rows if decide_placement(row, hosts, now=NOW).host), None)
    if first is None:
        assert plan == ()
    else:
        assert plan[0] == (first.turn_id, decide_placement(first, hosts, now=NOW).host)


@given(ROWS, HOSTS)
def test_who_was_left_out_fits_nowhere_any_more(rows, hosts):
    plan = plan_claims(rows, hosts, now=NOW).claims
    by_id = {row.turn_id: row for row in rows}
    left = [
        replace(
            host,
            slots_used=host.slots_used + sum(by_id[c.turn_id].requirements.slots for c in plan if c.host == host.name),
            memory_reserved_mb=host.memory_reserved_mb
            + sum(by_id[c.turn_id].requirements.memory_mb or 0 for c in plan if c.host == host.name),
            memory_available_mb=host.memory_available_mb
            and max(
                0,
                host.memory_available_mb
                - sum(by_id[c.turn_id].requirements.memory_mb or 0 for c in plan if c.host == host.name),
            ),
        )
        for host in hosts
    ]
    claimed = {claim.turn_id for claim in plan}
    for row in rows:
        if row.turn_id not in claimed:
            assert decide_placement(row, left, now=NOW).host is None


@given(ROWS, HOSTS, st.randoms(use_true_random=False))
def test_the_order_in_which_hosts_are_named_changes_nothing(rows, hosts, random_):
    mixed = hosts[:]
    random_.shuffle(mixed)
    if find_twins(hosts) or find_twins(mixed):
        return  # of two names of one machine the first counts
    if len({host.name for host in hosts}) == len(hosts):
        assert plan_claims(rows, hosts, now=NOW) == plan_claims(rows, mixed, now=NOW)
    for row in rows:
        one, two = decide_placement(row, hosts, now=NOW), decide_placement(row, mixed, now=NOW)
        assert one == two
        assert [name for name, _ in one.rejected] == sorted({name for name, _ in one.rejected})
        assert one.host not in {name for name, _ in one.rejected}


def test_a_stopped_account_is_tried_by_one_row_alone():
    host = a_host(slots=4, tried={"codex": "it failed"})
    rows = [a_row(1, account="codex"), a_row(2, account="codex"), a_row(3, account="claude"), a_row(4)]
    assert [claim.turn_id for claim in plan_claims(rows, [host], now=NOW).claims] == ["t1-1", "t3-1", "t4-1"]
    hosts = [host, a_host("b", slots=4, stopped={"codex": "it failed"})]
    assert [claim.host for claim in plan_claims(rows[:2], hosts, now=NOW).claims] == ["a"]
