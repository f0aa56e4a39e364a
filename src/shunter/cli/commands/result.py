"""`shunter result`."""

from __future__ import annotations

import time

import click

from ...agents import contract
from ...model.states import PushState, TaskState
from ...policy.outcome import exit_status_of
from ...service.home import Home
from ...service.view import TaskView, load_view
from ...wire.errors import ShunterError
from ...wire.messages import LimitNotice
from ..output import emit, json_option, say, task_argument, view_record
from ..text import clock, coloured, count, duration, phrase_colour, visible, zone


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
    store = Home().reading
    view = load_view(store, store.find_task(task).id)
    if ref_alone:
        if view.ref is None:
            raise ShunterError("FETCH_FAILED", f"task {view.task.id} is {view.phrase} and has no branch at home")
        say(view.ref.removeprefix("refs/remotes/"))
    elif as_json:
        emit(view_record(view))
    else:
        say(render_result(view))
    if view.turn is None or (view.turn.outcome is None and view.turn.settled_at is None):
        ctx.exit(70)


def render_result(view: TaskView) -> str:
    task, turn = view.task, view.turn
    lines = [f"{task.id}  {coloured(view.phrase, phrase_colour(view.phrase))}  {visible(task.title)}"]
    if turn is None:
        return lines[0]
    end = turn.outcome
    if end is None:
        lines += push_lines(view)
        if turn.error_code:
            lines.append(f"  {turn.error_code}: {visible(turn.error_text or '')}")
        elif turn.cancel_requested_at is not None and turn.settled_at is not None:
            what = f"repeat of turn {turn.number - turn.repeat_number} " if turn.repeat_number else ""
            lines.append(f"  {what}cancelled by {visible(turn.cancel_actor or 'user')} before any agent was started")
        elif turn.settled_at is None:
            lines.append(f"  no result yet{': ' if turn.repeat_number else ''}{repeat_words(view)}")
        return "\n".join(lines)
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
    if end.background:
        lines.append(f"  note       ended with background work running: {end.background} processes were ended")
    if turn.error_code:
        lines.append(f"  error      {turn.error_code}: {visible(turn.error_text or '')}")
    if end.permission != task.permission and task.permission == "workspace":
        lines.append("  note       ran without a sandbox: the agent has none here (see `shunter host check`)")
    over_at = turn.exited_at or turn.ended_at
    if turn.started_at and over_at:
        lines.append(f"  took       {duration(over_at - turn.started_at)}, exit status {exit_status_of(turn)}")
    step = next_step(view)
    if step is not None:
        lines.append(f"  next       {step}")
    return "\n".join(lines)


def next_step(view: TaskView) -> str | None:
    """What a person would do now, where that is not to look at the branch."""
    end = view.turn.outcome if view.turn is not None else None
    if end is None or view.task.state != TaskState.OPEN:
        return None
    say_more = f"shunter say {view.task.id}"
    if end.outcome == contract.NEEDS_INPUT:
        several = len(end.questions) > 1
        answer = " --answer 1=… --answer 2=…" if several else " --answer …" if end.questions else " …"
        return say_more + answer
    if end.outcome == contract.CONTEXT_FULL or end.evidence.startswith(contract.SESSION_UNKNOWN):
        return f"{say_more} --fresh …  (a new session on the same branch)"
    if end.outcome == contract.AUTH:
        return f"sign in to {visible(view.task.agent)} on {view.task.host} by hand, then {say_more} …"
    if end.outcome in (contract.LIMIT, contract.OVERLOAD, contract.TIMED_OUT, contract.LOST, contract.CRASHED):
        return f"{say_more} …  goes on from what it did"
    return None


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
