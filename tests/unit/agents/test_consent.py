from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shunter.agents.consent import Answer, Calls, answer_request

EVERY = ("allow_always", "allow_once", "reject_always", "reject_once")


def ask(
    call: Any, permission: str = "workspace", offered: tuple[str, ...] = EVERY, calls: Calls | None = None
) -> Answer:
    options = [{"optionId": f"my-{kind}", "kind": kind, "name": "x"} for kind in offered]
    params = {"toolCall": call, "options": options}
    return answer_request(
        params, calls or Calls(), permission=permission, is_inside=lambda path: path.startswith("/w/")
    )


def kind_of(*arguments: Any, **more: Any) -> str:
    return ask(*arguments, **more).option_kind


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ({"kind": "edit", "locations": [{"path": "/w/a"}]}, "allow_once"),
        ({"kind": "edit", "locations": [{"path": "/w/a"}, {"path": "/etc/passwd"}]}, "reject_once"),
        ({"kind": "edit", "content": [{"type": "diff", "path": "/etc/passwd"}]}, "reject_once"),
        ({"kind": "edit", "rawInput": {"file_path": "/etc/passwd"}}, "reject_once"),
        ({"rawInput": {"filePath": "/etc/passwd"}}, "reject_once"),
        ({"kind": "edit"}, "reject_once"),
        ({"kind": "delete", "locations": [{"path": ""}]}, "reject_once"),
        ({"kind": "read"}, "allow_once"),
        ({"kind": "read", "locations": [{"path": "/etc/passwd"}]}, "reject_once"),
        # A file URL is the file, `~` is a home, and what the input holds deeper counts as well.
        ({"kind": "edit", "locations": [{"path": "file:///etc/x"}]}, "reject_once"),
        ({"kind": "edit", "locations": [{"path": "FILE:/etc/x"}]}, "reject_once"),
        ({"kind": "edit", "locations": [{"path": "file://localhost/%65tc/x"}]}, "reject_once"),
        ({"kind": "edit", "locations": [{"path": "file://elsewhere/w/x"}]}, "reject_once"),
        ({"kind": "edit", "locations": [{"path": "file:///w/a%20b"}]}, "allow_once"),
        ({"kind": "edit", "locations": [{"path": "file:///w/a#L10"}]}, "allow_once"),
        ({"kind": "edit", "locations": [{"path": "file:///etc/a#/w/x"}]}, "reject_once"),
        ({"kind": "edit", "locations": [{"path": "~/x"}]}, "reject_once"),
        ({"kind": "edit", "locations": [{"path": "~root/x"}]}, "reject_once"),
        ({"kind": "edit", "locations": [{"path": " $HOME/x"}]}, "reject_once"),
        ({"kind": "edit", "locations": [{"path": "https://example.org/x"}]}, "reject_once"),
        (
            {"kind": "edit", "locations": [{"path": "/w/f"}], "rawInput": {"edits": [{"path": "/etc/x"}]}},
            "reject_once",
        ),
        ({"rawInput": {"a": {"b": [[{"targetFile": "/etc/x"}]]}}}, "reject_once"),
        ({"rawInput": {"paths": ["/w/a", "/etc/x"]}}, "reject_once"),
        ({"rawInput": {"new-path": "/etc/x"}}, "reject_once"),
        ({"rawInput": {"url": "file:///etc/x"}}, "reject_once"),
        ({"rawInput": {"changes": {"/etc/x": {"type": "add"}}}}, "reject_once"),
        ({"kind": "edit", "rawInput": {"changes": {"/w/x": {"content": "/etc/y"}}}}, "allow_once"),
        ({"kind": "edit", "rawInput": {"path": "/w/a", "content": "~/x", "old_string": "/etc/x"}}, "allow_once"),
        # More than is looked at.
        ({"rawInput": {"paths": ["/w/a"] * 20_000}}, "reject_once"),
        ({"rawInput": {"paths": [f"/w/{number}" for number in range(1000)]}}, "reject_once"),
        ({"locations": [{"path": "/w/" + "a/" * 4000}]}, "reject_once"),
        ({"kind": "execute", "rawInput": {"command": "make"}}, "allow_once"),
        ({"kind": "execute", "rawInput": {"command": "make", "cwd": "/etc"}}, "reject_once"),
        ({"kind": "execute", "locations": [{"path": "/"}]}, "reject_once"),
        ({"kind": "fetch"}, "reject_once"),
        ({"kind": "switch_mode"}, "reject_once"),
        ({"kind": "other"}, "allow_once"),
        ({}, "allow_once"),
    ],
)
def test_in_a_workspace_what_says_that_it_leaves_is_rejected(call: Any, kind: str) -> None:
    assert kind_of(call) == kind
    assert kind_of(call, "unattended") == "allow_once"


def test_the_answer_is_the_narrowest_option_and_names_it() -> None:
    inside = "every path that it names is in the workspace or in TMPDIR"
    assert ask({"locations": [{"path": "/w/a"}]}) == Answer("my-allow_once", "allow_once", inside)
    assert kind_of({}, offered=("reject_once", "allow_always")) == "allow_always"
    assert kind_of({"kind": "fetch"}, offered=("allow_once", "reject_always")) == "reject_always"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (
            {"kind": "execute", "rawInput": {"command": "rm -rf /", "cwd": "/w/"}},
            "a command runs with the account's rights",
        ),
        ({"kind": "other"}, "it names no path, so nothing speaks against it"),
        ({}, "it names no path, so nothing speaks against it"),
        ({"kind": "edit", "locations": [{"path": "~/x"}]}, "~/x is outside of the workspace"),
        ({"rawInput": {"paths": ["/w/a"] * 20_000}}, "it names more than can be judged"),
    ],
)
def test_a_reason_says_no_more_than_is_known(call: Any, reason: str) -> None:
    assert ask(call).reason == reason


def test_input_of_any_depth_is_judged() -> None:
    given: Any = {"path": "/etc/x"}
    for _ in range(5000):
        given = {"input": given}
    assert kind_of({"rawInput": given}) == "reject_once"


@pytest.mark.parametrize("offered", [(), ("reject_once", "reject_always"), ("something",)])
def test_without_a_usable_option_the_request_is_cancelled(offered: tuple[str, ...]) -> None:
    found = ask({}, "unattended", offered)
    assert (found.option_id, found.option_kind) == (None, "cancelled")


def test_a_request_is_judged_by_all_that_was_told_of_its_call() -> None:
    calls = Calls()
    calls.note({"toolCallId": "a", "kind": "edit", "locations": []})
    calls.note({"toolCallId": "a", "locations": [{"path": "/etc/passwd"}]})
    calls.note({"toolCallId": "b", "kind": "edit", "locations": [{"path": "/w/a"}]})
    calls.note({"toolCallId": "b", "status": "pending"})
    assert kind_of({"toolCallId": "a", "rawInput": {"path": "/w/a"}}, calls=calls) == "reject_once"
    assert kind_of({"toolCallId": "b"}, calls=calls) == "allow_once"
    assert kind_of({"toolCallId": "c", "kind": "edit"}, calls=calls) == "reject_once"


def test_of_many_calls_the_latest_are_kept() -> None:
    calls = Calls()
    for number in range(1000):
        calls.note({"toolCallId": str(number), "kind": "fetch"})
    assert kind_of({"toolCallId": "999"}, calls=calls) == "reject_once"
    assert kind_of({"toolCallId": "0"}, calls=calls) == "allow_once"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["toolCall", "options", "kind", "locations", "path", "content", "type", "rawInput", "optionId"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(values, values)
def test_whatever_is_asked_is_answered(update: Any, params: Any) -> None:
    calls = Calls()
    calls.note(update)
    found = answer_request(params, calls, permission="workspace", is_inside=lambda path: False)
    assert (found.option_id is None) == (found.option_kind == "cancelled")
