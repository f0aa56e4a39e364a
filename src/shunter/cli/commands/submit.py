"""`shunter submit`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...policy.outcome import exit_status_of, push_status_of
from ...service.home import Home
from ...service.submit import SubmitAsk, Submitted, submit_task
from ...service.waiting import wait_for
from ...wire.errors import ShunterError
from ...wire.messages import PROMPT_LIMIT_BYTES
from ..durations import DURATION
from ..obstacles import obstacle_teller
from ..output import emit, json_option, say, view_record
from ..receipt import Receipt
from ..text import visible

if TYPE_CHECKING:
    from ...service.say import Said

FIRST_PUSH_LIMIT_S = 60.0


@click.command("submit")
@click.argument("prompt", required=False)
@click.option("-f", "--prompt-file", type=click.Path(path_type=Path), help="Read the prompt from a file; - is stdin.")
@click.option(
    "-a",
    "--agent",
    help="codex, claude, gemini, …, 'exec:<command line>', 'acp:<command line>', or a name from the configuration.",
)
@click.option("--model", help="The agent's model.")
@click.option("--effort", help="How hard the model thinks, in the agent's own words.")
@click.option("--base", metavar="REV", help="Commit to start from; HEAD when left out. Pinned at once.")
@click.option("--wip", is_flag=True, default=None, help="Start from the working tree, uncommitted changes included.")
@click.option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="With --wip: untracked files to take along, as in .gitignore; may be repeated.",
)
@click.option(
    "--source",
    type=click.Choice(["home", "origin"]),
    help="Who brings the base: home, or the host fetches from origin.",
)
@click.option(
    "--publish", type=click.Choice(["none", "push"]), help="push: the result also goes to a branch of origin."
)
@click.option(
    "--publish-branch", metavar="NAME", help="That branch; shunter/<id> when left out. It must not exist yet."
)
@click.option("--title", help="For tables; the prompt's first line when left out.")
@click.option("--timeout", type=DURATION, help="End the turn after this time, e.g. 90s, 30m, 2h; 0 is no limit.")
@click.option("--max-turns", type=click.IntRange(1), help="Model turns inside the agent, where it knows such a limit.")
@click.option("--max-budget-usd", type=click.FloatRange(0, min_open=True), help="Money, where the agent knows a limit.")
@click.option(
    "--max-followups", type=click.IntRange(0), help="How many follow-ups `say` may add; any number when left out."
)
@click.option(
    "--close-on", type=click.Choice(["never", "done", "any"]), help="Remove the workspace by itself when it ended so."
)
@click.option(
    "--permission",
    type=click.Choice(["workspace", "unattended"]),
    help="In the agent's own sandbox where it has one, or without.",
)
@click.option(
    "--env-profile", metavar="NAME", help="Variables from env/NAME.env of the host's configuration directory."
)
@click.option("--host", metavar="NAME", help="Only this host.")
@click.option("--priority", type=click.IntRange(-1000, 1000), help="Higher goes first.")
@click.option("--memory-mb", type=click.IntRange(1), help="Memory to reserve on the host.")
@click.option("--no-wait", is_flag=True, help="Refuse with CAPACITY_BUSY (75) when no slot is free now.")
@click.option(
    "--wait",
    is_flag=True,
    help="Block until the turn is over; the exit status is the agent's. A push is waited for once.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Hand over a task; prints its id at once.

    The agent gets PROMPT (or a file, or standard input), works in a workspace of its own on a clean copy of the base,
    and its commits come back as refs/remotes/shunter/<host>/task/<id>. Your own files, index and branches are not
    touched. The work goes on when the terminal is closed.

    \b
      shunter submit -a codex "fix the flaky test in tests/test_io.py"
      shunter submit -a claude -f task.md --wip --timeout 30m --wait
      echo "3 new lines" | shunter submit -a 'exec:tee -a notes.txt'
    """
    home = Home()
    wait, as_json = given.pop("wait"), given.pop("as_json")
    prompt = read_prompt(given.pop("prompt"), given.pop("prompt_file"))
    given["include"] = given["include"] or None
    own = {name: given.pop(name) for name in ("title", "no_wait", "publish_branch")}
    ask = SubmitAsk(prompt, given=given, **own)
    receipt = Receipt()
    submitted = submit_task(home, ask, before_store=receipt.hold)
    task_id = submitted.task.id
    told = Told(f"task {task_id}", verb="submit", line=task_id, record=submitted.task)
    ctx.exit(finish_stored(home, receipt, submitted, told, wait=wait, as_json=as_json))


@dataclass(frozen=True, slots=True)
class Told:
    """What was stored, for the errors; what not to do again; and how it is told, as a line or as a record."""

    what: str
    verb: str
    line: str
    record: Any


def finish_stored(
    home: Home, receipt: Receipt, stored: Submitted | Said, told: Told, *, wait: bool, as_json: bool
) -> int:
    """Tell what was stored, and with `wait` see its turn through: the exit status. Raises its fault."""
    task_id, waits = stored.task.id, wait and stored.fault is None
    status, hint = 0, f"do not {told.verb} it again; shunter status {task_id}"
    with receipt.told(told.what, hint=hint, fault=stored.fault):
        for warning in stored.warnings:
            click.echo(f"shunter: {visible(warning)}", err=True)
        if not as_json:
            say(told.line)
        elif not waits:
            emit(told.record)
        else:  # the id stands in the record of the end
            status = finish_waiting(home, task_id, stored.warnings, as_json=True)
    if stored.fault:
        raise stored.fault
    return finish_waiting(home, task_id, stored.warnings, as_json=False) if waits and not as_json else status


def finish_waiting(home: Home, task_id: str, told: Collection[str], *, as_json: bool) -> int:
    """Wait for the task's turn and show its result; the agent's exit status. `told`: what keeps it was said already."""
    view = wait_for(home, [task_id], timeout_s=None, on_look=obstacle_teller(home, told=told))[0]
    if view.push is not None:
        from ...service.actions import wait_push  # what asks hosts is not loaded by a submit that only stores

        with contextlib.suppress(ShunterError):  # how far it is then is told
            view = wait_push(home, task_id, timeout_s=FIRST_PUSH_LIMIT_S, one_try=True)
    if as_json:
        emit(view_record(view))
    else:
        from .result import render_result

        say(render_result(view, home))
    assert view.turn is not None
    return exit_status_of(view.turn) or push_status_of(view.push)


def read_prompt(prompt: str | None, prompt_file: Path | None) -> bytes:
    """Bytes as they were given; an argument that was no UTF-8 is passed on as it is and refused later."""
    if prompt is not None and prompt_file is not None:
        raise ShunterError("USAGE", "give the prompt as an argument or as --prompt-file, not both")
    if prompt is not None and prompt != "-":
        return prompt.encode("utf-8", "surrogateescape")
    if prompt_file is not None and str(prompt_file) != "-":
        try:
            with prompt_file.open("rb") as file:
                return file.read(PROMPT_LIMIT_BYTES + 1)
        except OSError as exc:
            raise ShunterError("IO", f"{prompt_file}: {exc.strerror}") from exc
    if prompt is None and prompt_file is None and sys.stdin.isatty():
        raise ShunterError("USAGE", "there is no prompt", hint="shunter submit -a AGENT PROMPT, or -f FILE, or a pipe")
    if sys.stdin.isatty():
        click.echo("shunter: type the prompt, then Ctrl-D", err=True)
    return sys.stdin.buffer.read(PROMPT_LIMIT_BYTES + 1)
