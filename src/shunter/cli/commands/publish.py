"""`shunter publish`."""

from __future__ import annotations

import click

from ...model.states import PushState
from ...service.actions import require_push, retry_push, wait_push
from ...service.home import Home
from ..durations import DURATION
from ..output import emit, json_option, say, task_argument, view_record
from .result import push_lines


@click.command("publish")
@task_argument()
@click.option("--retry", is_flag=True, help="Try again now, and wait for what comes of it.")
@click.option("--wait", is_flag=True, help="Block until origin has it, refused it, or a person is needed.")
@click.option("--timeout", type=DURATION, help="Give up waiting after this time; it goes on.")
@json_option
@click.pass_context
def command(ctx: click.Context, task: str, retry: bool, wait: bool, timeout: float | None, as_json: bool) -> None:
    """Show whether origin has a task's branch; with --retry, try again.

    For tasks that were submitted with --publish push. The push happens by itself once the turn has ended, and again
    with growing pauses while origin does not answer. Exit status 0 when origin has the branch or there is nothing to
    push, else 70. A branch is never forced: one that somebody else made or moved is left alone.
    """
    home = Home()
    view = require_push(home.store if retry or wait else home.reading, task)
    if retry:
        view = retry_push(home, view.task.id, actor="user")
    if retry or wait:
        view = wait_push(home, view.task.id, timeout_s=timeout, one_try=not wait)
    assert view.push is not None
    if as_json:
        emit(view_record(view))
    else:
        say("\n".join([f"{view.task.id}  {view.push.state}", *push_lines(view)]))
    if view.push.state not in (PushState.PUSHED, PushState.NOTHING):
        ctx.exit(70)
