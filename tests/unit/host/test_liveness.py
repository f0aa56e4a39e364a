"""The table of liveness, row by row by its name, its laws over all combinations, and the case it exists for."""

from __future__ import annotations

import itertools

import pytest

from shunter.host.liveness import (
    VALUES,
    Evidence,
    Intent,
    authoritative_result,
    mutation_allowed,
    recommend,
    recovery_veto,
)

CHANGE = Intent("commit left-overs")


def seen(**changes):
    """Quiet, dead, on its own host, everything known, nothing said."""
    values = {
        "identity": "full",
        "host": "same",
        "signal": "none",
        "report": "none",
        "result_file": False,
        "process": "dead",
        "supervisor": "dead",
        "heartbeat_recent": False,
        "files_recent": False,
    }
    return Evidence(**{**values, **changes})


FREE, HANDS_OFF = True, False
# name: evidence, recovery allowed, result standing, verdict, mutation allowed, recommended action
ROWS = {
    "S1": (seen(signal="completed", result_file=True), FREE, "authoritative", "completed", FREE, "ingest"),
    "S1 failed": (seen(signal="failed", result_file=True), FREE, "authoritative", "failed", FREE, "ingest"),
    "S1 supervisor about to go": (
        seen(signal="completed", result_file=True, supervisor="alive"),
        *(FREE, "authoritative", "completed", FREE, "ingest"),
    ),
    "S2": (seen(signal="completed"), FREE, "authoritative", "completed", FREE, "ingest"),
    "S2 failed": (seen(signal="failed"), FREE, "authoritative", "failed", FREE, "ingest"),
    "S3": (seen(report="completed"), FREE, "corroborated", "completed", FREE, "ingest"),
    "S3 failed": (seen(report="failed", signal="launched"), FREE, "corroborated", "failed", FREE, "ingest"),
    "S4": (seen(process="alive", supervisor="alive"), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    "S4 launched": (seen(signal="launched", process="alive"), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    "S5": (seen(supervisor="unknown"), FREE, "none", "silent_death", FREE, "give_up"),
    "S5 supervisor gone too": (seen(signal="launched"), FREE, "none", "silent_death", FREE, "give_up"),
    "S6 files": (seen(files_recent=True), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    "S6 heartbeat": (seen(heartbeat_recent=True), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    "S7a": (
        seen(signal="completed", host="foreign", process="unknown", supervisor="unknown"),
        *(HANDS_OFF, "authoritative", "completed", HANDS_OFF, "ingest"),
    ),
    "S7b nothing": (
        seen(host="foreign", process="unknown"),
        *(HANDS_OFF, "none", "unknown_host", HANDS_OFF, "ask_host"),
    ),
    "S7b self-report": (
        seen(host="foreign", process="unknown", report="completed"),
        *(HANDS_OFF, "none", "unknown_host", HANDS_OFF, "ask_host"),
    ),
    "R1": (seen(identity="none", signal="completed"), FREE, "authoritative", "completed", FREE, "ingest"),
    "R2": (seen(identity="none", report="ack", process="alive"), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    "R3": (seen(identity="none", report="completed"), FREE, "corroborated", "completed", FREE, "ingest"),
    "R4": (
        seen(identity="none", report="completed", files_recent=True),
        *(HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    ),
    "R5": (seen(identity="none", process="alive"), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    "R6": (seen(identity="none", supervisor="unknown"), FREE, "none", "silent_death", FREE, "give_up"),
    "P1": (
        seen(identity="partial", report="completed", report_nonce_matches=True),
        *(FREE, "authoritative", "completed", FREE, "ingest"),
    ),
    "P2": (seen(identity="partial", report="ack", process="alive"), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    "P3": (seen(identity="partial", report="ack"), FREE, "none", "silent_death", FREE, "give_up"),
    "P4": (
        seen(identity="partial", report="ack", files_recent=True),
        *(HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    ),
    "P5": (seen(identity="partial", process="alive"), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
    "P6 ack": (
        seen(identity="partial", report="ack", host="foreign", process="unknown"),
        *(HANDS_OFF, "none", "unknown_host", HANDS_OFF, "ask_host"),
    ),
    "P6 nothing": (
        seen(identity="partial", host="foreign", process="unknown"),
        *(HANDS_OFF, "none", "unknown_host", HANDS_OFF, "ask_host"),
    ),
    "P7": (seen(identity="partial"), FREE, "none", "silent_death", FREE, "give_up"),
    "P8": (seen(identity="partial", files_recent=True), HANDS_OFF, "none", "unknown", HANDS_OFF, "wait"),
}


@pytest.mark.parametrize("row", ROWS)
def test_row(row):
    evidence, recovery, standing, verdict, mutation, action = ROWS[row]
    result = authoritative_result(evidence)
    assert (recovery_veto(evidence) is None) == recovery
    assert (result.standing, result.verdict) == (standing, verdict)
    assert bool(mutation_allowed(evidence, CHANGE)) == mutation
    assert recommend(evidence).action == action


def test_every_row_of_the_table_has_its_test():
    wanted = {*(f"S{n}" for n in range(1, 7)), "S7a", "S7b"}
    wanted |= {f"R{n}" for n in range(1, 7)} | {f"P{n}" for n in range(1, 9)}
    assert {name.split()[0] for name in ROWS} == wanted


@pytest.mark.parametrize(
    ("row", "notes"),
    [
        ("S3", ("self_report",)),
        ("S5", ()),
        ("S5 supervisor gone too", ("supervisor_died",)),
        ("P3", ("supervisor_died", "identity_partial")),
    ],
)
def test_notes_for_the_audit_log(row, notes):
    assert recommend(ROWS[row][0]).notes == notes


def everything():
    return [Evidence(**dict(zip(VALUES, values))) for values in itertools.product(*VALUES.values())]


def test_the_laws_hold_for_every_combination():
    combinations = everything()
    assert len(combinations) == 3 * 2 * 5 * 4 * 2 * 3 * 3 * 2 * 2 * 2
    for evidence in combinations:
        free = recovery_veto(evidence) is None
        result = authoritative_result(evidence)
        permissions = [mutation_allowed(evidence, Intent("x", never_used=flag)) for flag in (False, True)]
        advice = recommend(evidence)
        if evidence.host == "foreign":
            assert not free
            assert not any(permissions)
        if evidence.process == "alive" or evidence.heartbeat_recent or evidence.files_recent:
            assert not free
            assert not any(permissions)
            assert result.standing != "authoritative" or evidence.host == "foreign"
        if result.standing == "authoritative":
            matched = evidence.report in ("completed", "failed") and evidence.report_nonce_matches
            assert evidence.signal in ("completed", "failed") or matched
        assert all(permission.reason for permission in permissions)
        assert advice.action in ("ingest", "give_up", "wait", "ask_host")
        if advice.action in ("give_up",):
            assert free
        if advice.workspace:
            assert permissions[0]


def test_an_unknown_process_counts_as_alive():
    for evidence in everything():
        if evidence.process == "unknown":
            assert recovery_veto(evidence) is not None
            assert not mutation_allowed(evidence, CHANGE)


def test_a_working_supervisor_is_a_sign_of_life():
    publishing = seen(signal="exited", supervisor="alive")
    assert recovery_veto(publishing) == "the supervisor is at work"
    assert authoritative_result(publishing).standing == "none"
    orphaned = seen(signal="exited")
    assert recovery_veto(orphaned) is None
    assert authoritative_result(orphaned).verdict == "exited"


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({"process": "unknown", "supervisor": "unknown"}, True),
        ({"process": "unknown", "heartbeat_recent": True}, False),
        ({"process": "unknown", "result_file": True}, False),
        ({"process": "unknown", "files_recent": True}, False),
        ({"process": "unknown", "signal": "launched"}, False),
        ({"process": "alive"}, False),
        ({"process": "unknown", "host": "foreign"}, False),
    ],
)
def test_the_one_exemption_needs_every_proof(changes, allowed):
    assert bool(mutation_allowed(seen(**changes), Intent("clean up", never_used=True))) == allowed
    assert not mutation_allowed(seen(**changes), Intent("clean up"))


def test_a_value_that_the_table_does_not_know_is_refused():
    with pytest.raises(ValueError, match="process"):
        seen(process="zombie")


def test_the_case_it_exists_for():
    """Three workers finish and their wrappers die before they report; none of the work is thrown away."""
    reported_early = {"report": "ack", "result_file": True}
    supervised = seen(signal="completed", **reported_early)
    assert recommend(supervised).action == "ingest"
    # The supervisor died as well: nothing is decided while files still move, and nothing is cleaned up.
    moving = seen(files_recent=True, **reported_early)
    assert recommend(moving).action == "wait"
    assert not mutation_allowed(moving, Intent("clean up"))
    assert not mutation_allowed(moving, Intent("clean up", never_used=True))
    quiet = seen(**reported_early)
    assert recommend(quiet).action == "give_up"
    assert not mutation_allowed(seen(process="unknown", **reported_early), Intent("clean up", never_used=True))
