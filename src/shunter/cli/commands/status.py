"""`shunter status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from ...model.states import Step
from ...service.home import Home
from ...service.leading import unled
from ...service.view import TaskDetail, ending_of, load_detail, receipt_of, timing_of
from ...wire.codec import encode
from ..output import emit, json_option, say, task_argument, view_record
from ..text import age, clock, duration, visible
from .result import render_result, repeat_words

if TYPE_CHECKING:
    from ...model.records import Turn
    from ...policy.placement import Reason


Rejected = tuple[tuple[str, "Reason"], ...]


@click.command("status")
@task_argument()
@click.option("--timing", is_flag=True, help="Where the time went, step by step.")
@json_option
def command(task: str, timing: bool, as_json: bool) -> None:
    """Show one task: state, turns, result, history.

    It is what was last recorded, no host is asked; `shunter reconcile` has everything asked again. --json also holds
    every attempt and the event log: each transition with its actor and reason.
    """
    home = Home()
    detail = load_detail(home.reading, task)
    rejected = why_not(home, detail)
    if as_json:
        emit(_record(detail, rejected))
        return
    say(render_status(home, detail, rejected))
    stale = unled(home)
    if stale:
        say(f"  {stale}")
    if timing:
        for turn in detail.turns:
            say(f"turn {turn.number}")
            for name, seconds in timing_of(turn).stages:
                say(f"  {name:<24} {duration(seconds):>10}")


def _record(detail: TaskDetail, rejected: Rejected) -> dict[str, object]:
    return {
        **view_record(detail.view),
        "turns": encode(detail.turns),
        "receipts": encode(tuple(receipt_of(turn) for turn in detail.messages)),
        "attempts": [{**encode(attempt), "lease_token": None} for attempt in detail.attempts],  # a key is no fact
        "events": encode(detail.events),
        "rejected": [{"host": host, "code": reason.code, "words": reason.words} for host, reason in rejected],
        "timing": encode(tuple(timing_of(turn) for turn in detail.turns)),
    }


def why_not(home: Home, detail: TaskDetail) -> Rejected:
    """For a turn that waits: each host that does not take it, and why."""
    turn = detail.view.turn
    row = home.reading.load_row(turn.id) if turn is not None and turn.step == Step.WAITING else None
    if row is None:
        return ()
    from ...service.pool import explain_row

    return explain_row(home, row).rejected


def render_status(home: Home, detail: TaskDetail, rejected: Rejected = ()) -> str:
    task, turn, now = detail.view.task, detail.view.turn, time.time()
    lines = [
        render_result(detail.view, home),
        f"  agent      {visible(task.agent)}" + (f", model {visible(task.model)}" if task.model else ""),
        f"  base       {task.base_oid[:12]} ({task.base_kind})",
        f"  host       {task.host or task.pinned_host or 'not chosen yet'}",
        f"  submitted  {age(now - task.created_at)} ago",
    ]
    if turn is not None and turn.step != Step.SETTLED:
        lines.append(f"  now        {explain(detail)}")
    lines += [f"    {host + ':':<12} {visible(why.words)}" for host, why in rejected]
    if len(detail.messages) > 1:
        lines.append("  messages")
        lines += [f"    turn {each.number:<4} {explain_receipt(each)}" for each in detail.messages]
    lines.append("  history")
    for event in detail.events[-12:]:
        kind = "push: " if event.kind == "push" else ""
        what = f"{kind}{event.from_state or ''} -> {event.to_state}" if event.to_state else event.kind
        reason = f"  {visible(event.reason)}" if event.reason else ""
        lines.append(f"    {clock(event.at)}  {event.actor:<10} {what}{reason}")
    return "\n".join(lines)


def explain_receipt(turn: Turn) -> str:
    receipt = receipt_of(turn)
    stages = {name: getattr(receipt, name) for name in ("stored", "delivered", "taken", "answered")}
    told = [f"{name} {clock(at)}" for name, at in stages.items() if at is not None]
    repeats = f"repeat {turn.repeat_number} of {turn.repeat_limit}: " if turn.repeat_number else ""
    return repeats + ", ".join(told) + (f": {ending_of(turn)}" if turn.step == Step.SETTLED else "")


def explain(detail: TaskDetail) -> str:
    """Why it is where it is, in words."""
    turn = detail.view.turn
    assert turn is not None
    if turn.uncertain:
        since = max((event.at for event in detail.events if event.kind == "uncertain"), default=None)
        known = f" for {age(time.time() - since)}" if since is not None else ""
        asked = "; the cancellation is stored and told it as soon as it answers" if turn.cancel_requested_at else ""
        return f"uncertain{known}: {visible(turn.uncertain_reason or 'the host could not be asked')}{asked}"
    if turn.step == Step.WAITING and detail.view.again_at is not None and detail.view.again_at > time.time():
        return repeat_words(detail.view)
    if turn.step == Step.WAITING:
        refused = [event.reason for event in detail.events if event.kind == "refused"]
        failed = [attempt.failure_code for attempt in detail.attempts if attempt.failure_code]
        why = refused[-1] if refused else failed[-1] if failed else None
        return "waiting for a host that takes it" + (f" (last try: {visible(why)})" if why else "")
    started = f" for {age(time.time() - turn.started_at)}" if turn.started_at and turn.step == Step.RUNNING else ""
    heard = [event for event in detail.events if event.turn_id == turn.id and event.kind in ("silent", "heard")]
    silent = f", silent ({visible(heard[-1].reason or '')})" if heard and heard[-1].kind == "silent" else ""
    return f"{turn.step}{started} on {turn.host}{silent}"
