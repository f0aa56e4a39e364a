"""`shunter say`."""

from __future__ import annotations

from pathlib import Path

import click

from ...service.home import Home
from ...service.say import SayAsk, say_to_task
from ..output import json_option, task_argument
from ..receipt import Receipt
from .submit import Told, finish_stored, read_prompt


@click.command("say")
@task_argument()
@click.argument("message", required=False)
@click.option("-f", "--prompt-file", type=click.Path(path_type=Path), help="Read the message from a file; - is stdin.")
@click.option(
    "--answer",
    "answers",
    multiple=True,
    metavar="[QUESTION=]ANSWER",
    help="Answer a question of the last turn by the number of an option, or in words; may be repeated.",
)
@click.option(
    "--interrupt", is_flag=True, help="End the turn that is under way; its work is kept, the message follows it."
)
@click.option("--fresh", is_flag=True, help="Start a new session on the same branch, told what was said so far.")
@click.option("--wait", is_flag=True, help="Block until the turn is over; the exit status is the agent's.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    task: str,
    message: str | None,
    prompt_file: Path | None,
    answers: tuple[str, ...],
    interrupt: bool,
    fresh: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Follow up on a task whose turn is over.

    The agent goes on in the same session, in the same workspace, on the same host, and the branch comes back as
    before. Refused with TASK_BUSY while a turn is under way (--interrupt ends it), and for a closed task.

    \b
      shunter say TASK "now add a test for the empty list" --wait
      shunter say TASK --answer 2                     option 2 of the only question
      shunter say TASK --answer 1=2 --answer 2="no"   several questions
    """
    answers_alone = answers and message is None and prompt_file is None
    text = None if answers_alone else read_prompt(message, prompt_file)
    home = Home()
    receipt = Receipt()
    ask = SayAsk(task, text, answers, interrupt=interrupt, fresh=fresh)
    said = say_to_task(home, ask, before_store=receipt.hold)
    task_id, number = said.task.id, said.turn.number
    told = Told(f"turn {number} of task {task_id}", verb="say", line=f"{task_id}  turn {number}", record=said.turn)
    ctx.exit(finish_stored(home, receipt, said, told, wait=wait, as_json=as_json))
