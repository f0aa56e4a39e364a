"""`shunter result`."""

from __future__ import annotations

import time
from dataclasses import replace

import click

from ...agents import contract
from ...model.states import PushState, TaskState, TurnState
from ...policy.outcome import NOT_AT_HOME, exit_status_of
from ...service.home import Home
from ...service.leading import unled
from ...service.view import TaskView, load_view
from ...service.waiting import is_over
from ...wire.errors import ShunterError
from ...wire.ids import turn_id
from ...wire.messages import LimitNotice
from ..output import emit, json_option, say, task_argument, view_record
from ..text import NOT_KEPT, clock, coloured, count, duration, phrase_colour, visible, zone


@click.command("result")
@task_argument()
@click.option("--ref", "ref_alone", is_flag=True, help="Only the name of the branch, as git takes it; 70 without one.")
@json_option
@click.pass_context
def command(ctx: click.Context, task: str, ref_alone: bool, as_json: bool) -> None:
    """Show how a task ended and what the agent said.

    Exit status 0 once there is a result, good or bad; 70 while there is none. With --json the record holds the
    structured result, questions, token use, files and the object id of the head.
    """
    home = Home()
    store = home.reading
    view = load_view(store, store.find_task(task).id)
    if ref_alone:
        if view.ref is None:
            raise ShunterError("FETCH_FAILED", f"task {view.task.id} is {view.phrase} and has no branch at home")
        say(view.ref.removeprefix("refs/remotes/"))
    elif as_json:
        emit(view_record(view))
    else:
        say(render_result(view, home))
        stale = unled(home)
        if stale and not is_over(view):
            say(stale)
    if view.turn is None or (view.turn.outcome is None and view.turn.settled_at is None):
        ctx.exit(70)


def render_result(view: TaskView, home: Home) -> str:
    """The last turn's result; of a repeat that was given up before it began, what the turn before it had made."""
    task, turn = view.task, view.turn
    if turn is not None and turn.repeat_number and turn.settled_at is not None and turn.attempt_number == 0:
        former = home.reading.load_turn(turn_id(task.id, turn.number - 1))
        given_up = f"its repeat was cancelled by {visible(turn.cancel_actor or 'user')} before any agent was started"
        return f"{render_result(replace(view, turn=former), home)}\n  note       {given_up}"
    lines = [f"{task.id}  {coloured(view.phrase, phrase_colour(view.phrase))}  {visible(task.title)}"]
    if turn is None:
        return lines[0]
    end = turn.outcome
    if end is None:
        lines += push_lines(view)
        if turn.error_code:
            lines.append(f"  {turn.error_code}: {visible(turn.error_text or '')}")
        elif turn.cancel_requested_at is not None and turn.settled_at is not None:
            lines.append(f"  cancelled by {visible(turn.cancel_actor or 'user')} before any agent was started")
        elif turn.settled_at is None:
            away = f"{turn.host} cannot be asked: {turn.uncertain_reason or 'no answer'}" if turn.uncertain else ""
            why = visible(away) or repeat_words(view)
            lines.append(f"  no result yet{': ' if why else ''}{why}")
        if turn.state == TurnState.LOST:
            lines.append(f"  next       shunter fetch {task.id}  asks {turn.host} once more")
            lines.append(f"             shunter say {task.id} …  goes on from what the workspace there holds")
        return "\n".join(lines)
    if not (turn.error_text or "").startswith(end.evidence):  # or it is told as the error
        lines.append(f"  why        {visible(end.evidence)}")
    if end.limit is not None:
        lines.append(f"  limit      {visible(limit_words(end.limit))}")
    if end.summary:
        said = visible(end.summary, keep="\n\t").strip().splitlines()
        lines.append(f"  said       {said[0] if said else ''}")
        lines += [f"             {line}" for line in said[1:]]
    for number, question in enumerate(end.questions, 1):
        lines.append(f"  question {number} {visible(question.text)}")
        lines += [f"             {n}. {visible(option)}" for n, option in enumerate(question.options, 1)]
    if end.publication is not None:
        lines += _publication_lines(view)
    usage = end.usage
    tokens = [(usage.input_tokens, "in"), (usage.output_tokens, "out")]
    spent = [f"{number} {way}" for number, way in tokens if number is not None]
    if spent:
        spent += [f"${usage.cost_usd:.4f}"] if usage.cost_usd is not None else []
        lines.append(f"  tokens     {', '.join(spent)}")
    if turn.repeat_number:
        lines.append(f"  note       repeat {turn.repeat_number} of {turn.repeat_limit}, after an overload")
    if end.renamed_session is not None:
        went_on = "the agent went on in a session of another name than it was given"
        lines.append(f"  note       {went_on}; follow-ups go on in {visible(end.renamed_session)}")
    if end.agent_version is not None:
        lines.append(f"  version    {visible(end.agent_version)}")
    lost = {"output": end.stdout_lost_bytes, "standard error": end.stderr_lost_bytes}
    for what, lost_bytes in lost.items():
        if lost_bytes:
            lines.append(f"  note       {lost_bytes} bytes of its {what} are not kept: {NOT_KEPT}")
    if end.background:
        lines.append(f"  note       ended with background work running: {end.background} processes were ended")
    if turn.error_code:
        lines.append(f"  error      {turn.error_code}: {visible(turn.error_text or '')}")
    was_launched = end.outcome != contract.LAUNCH_FAILED
    if was_launched and end.permission != task.permission and task.permission == "workspace":
        lines.append("  note       ran without a sandbox: the agent has none here (see `shunter host check`)")
    over_at = turn.exited_at or turn.ended_at
    if turn.started_at and over_at:
        lines.append(f"  took       {duration(over_at - turn.started_at)}, exit status {exit_status_of(turn)}")
    step = next_step(view, home)
    if step is not None:
        lines.append(f"  next       {step}")
    return "\n".join(lines)


def next_step(view: TaskView, home: Home) -> str | None:
    """What a person would do now, where that is not to look at the branch."""
    turn = view.turn
    end = turn.outcome if turn is not None else None
    if turn is None or end is None or view.task.state != TaskState.OPEN:
        return None
    if turn.error_code in NOT_AT_HOME:
        return f"shunter fetch {view.task.id}  tries again"
    if end.outcome not in _MORE_TO_SAY and not end.evidence.startswith(contract.SESSION_UNKNOWN):
        return None
    say_more = f"shunter say {view.task.id}"
    if end.outcome == contract.CONTEXT_FULL or end.evidence.startswith(contract.SESSION_UNKNOWN):
        return f"{say_more} --fresh …  (a new session on the same branch)"
    from ...service.say import needs_fresh  # with all that a submission needs; few results do

    if needs_fresh(home, view.task.id):
        say_more += " --fresh"
    if end.outcome == contract.NEEDS_INPUT:
        several = len(end.questions) > 1
        answer = " --answer 1=… --answer 2=…" if several else " --answer …" if end.questions else " …"
        return say_more + answer
    if end.outcome == contract.AUTH:
        return f"sign in to {visible(view.task.agent)} on {view.task.host} by hand, then {say_more} …"
    return f"{say_more} …  goes on from what it did"


# What somebody has to go on from; after another end there is nothing to say of.
_MORE_TO_SAY = (
    *(contract.LIMIT, contract.OVERLOAD, contract.TIMED_OUT, contract.LOST, contract.CRASHED),
    *(contract.NEEDS_INPUT, contract.CONTEXT_FULL, contract.AUTH),
)


def repeat_words(view: TaskView) -> str:
    """For a repeat: when it is due, unless that is over, and which one it is."""
    turn = view.turn
    if turn is None or not turn.repeat_number:
        return ""
    due_at = view.again_at or 0.0
    when = f"again at {clock(due_at)}" if due_at > time.time() else "again"
    return f"{when} ({turn.repeat_number} of {turn.repeat_limit})"


def limit_words(limit: LimitNotice) -> str:
    """Which window and when it ends, in this terminal's time zone."""
    window = limit.window.replace("_", "-") if limit.window else "not told which window"
    if limit.resets_at is not None:
        verb = "resets" if limit.resets_at > time.time() else "was to reset"
        return f"{window}, {verb} {clock(limit.resets_at)} {zone(limit.resets_at)}"
    return f"{window}, " + ("not told when it resets" if limit.renews else "waiting does not mend it")


def _publication_lines(view: TaskView) -> list[str]:
    assert view.turn is not None and view.turn.outcome is not None
    publication = view.turn.outcome.publication
    assert publication is not None
    lines = []
    if publication.commits:
        left = ", left-overs committed" if publication.leftovers_committed else ""
        commits = count(publication.commits, "commit")
        stat = f"+{publication.insertions} -{publication.deletions}"
        lines.append(f"  changes    {commits}, {count(publication.files_total, 'file')}, {stat}{left}")
        lines += [f"             {change.status} {visible(change.path)}" for change in publication.files[:20]]
        if publication.files_total > 20:
            lines.append(f"             … {publication.files_total - 20} more")
    if view.ref:
        lines.append(f"  branch     {view.ref.removeprefix('refs/remotes/')}")
    lines += push_lines(view)
    if publication.rewritten:
        lines.append("  note       the base is no ancestor of the result: the agent rewrote history")
    fetch = f"`shunter fetch --kept {view.task.id}` brings it"
    others = (f"not part of the result: {each.name} at {each.oid[:12]}; {fetch}" for each in publication.kept)
    alone = (f"only in the workspace, no part of the result: {each}" for each in publication.left_out)
    notes = (*publication.notices, *others, *alone)
    return lines + [f"  note       {visible(text)}" for text in notes]


def push_lines(view: TaskView) -> list[str]:
    """Where its branch on origin stands, for tasks that have one."""
    push = view.push
    if push is None:
        return []
    where = f"{visible(push.branch)} of {visible(push.url)}"
    lines = [f"  origin     {_PUSH_WORDS[push.state].format(where=where, oid=(push.pushed_oid or '')[:12])}"]
    if push.state in (PushState.FAILED, PushState.REFUSED):
        lines.append(f"             {push.error_code}: {visible(push.error_text or '')}")
        if push.hint:
            lines.append(f"             -> {visible(push.hint)}")
        if push.next_try_at is not None:
            wait_s = max(0.0, push.next_try_at - time.time())
            lines.append(f"             tried {count(push.tries, 'time')}, again in {duration(wait_s)}")
        else:
            lines.append(f"             then: shunter publish {push.task_id} --retry")
    return lines


_PUSH_WORDS = {
    PushState.PLANNED: "goes to {where} when it is there",
    PushState.NOTHING: "no commits, so nothing goes to {where}",
    PushState.PENDING: "being pushed to {where}",
    PushState.FAILED: "not yet on {where}",
    PushState.REFUSED: "refused: {where}",
    PushState.PUSHED: "pushed: {where} at {oid}",
    PushState.DROPPED: "given up: {where}",
}
