"""Following up: a further turn for a task, in the same workspace on the same host, and in the same session (T13).

Everything that can be refused is refused before the message is stored; from then on it has a receipt that only grows.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ..dispatch.job import launch_of
from ..dispatch.stops import retry_rule
from ..host.flock import hold_lock
from ..model.brief import Brief
from ..model.records import Row, Task, Turn, sanitised_summary
from ..model.states import Step, TaskState, TurnState
from ..policy.outcome import has_reached_agent, is_follow_up
from ..policy.retry import judge_session
from ..store.briefs import brief_id, read_brief, remove_brief, write_brief
from ..wire.errors import ShunterError
from ..wire.ids import turn_id
from ..wire.messages import Question
from .actions import settle_waiting
from .home import Home
from .stops import account_of, warn_stopped
from .submit import checked_prompt, requirements_of
from .twins import refuse_twin

RETOLD_CHARACTERS = 4000  # of each earlier prompt and summary


@dataclass(frozen=True, slots=True)
class SayAsk:
    """`answers` as the command line has them: `2`, `1=2`, `2=some words`. `message` None: the answers are all."""

    task: str
    message: bytes | None
    answers: tuple[str, ...] = ()
    interrupt: bool = False  # end the turn that is under way; the message is stored at once and follows it
    fresh: bool = False  # a new session on the same branch, told what was said before
    actor: str = "user"


@dataclass(frozen=True, slots=True)
class Said:
    task: Task
    turn: Turn
    warnings: tuple[str, ...] = ()
    fault: ShunterError | None = None  # the message is stored, but no dispatcher could be started


def say_to_task(home: Home, ask: SayAsk, *, before_store: Callable[[], object] = lambda: None) -> Said:
    """`before_store` is called when all is ready: what comes after it either fails or leaves a turn.

    Raises TASK_BUSY, TASK_CLOSED, FOLLOWUP_LIMIT, PROMPT_INVALID, ANSWER_INVALID; without `fresh` also
    SESSION_UNBOUND and SESSION_FAILING.
    """
    task = home.store.find_task(ask.task)
    turns = home.store.load_turns(task.id)
    _refuse_hopeless(home, task, turns)
    if turns[-1].step != Step.SETTLED and not ask.interrupt:
        raise _busy(turns[-1])
    former = _former_brief(home, turns)
    message = checked_prompt(_message(ask, turns[-1]).encode("utf-8", "surrogateescape"))
    if not ask.fresh:
        _require_session(task, turns, former)
        _refuse_failing(home, task, turns)
    with hold_lock(str(home.places.state_dir / "say.lock")):  # a turn's number and its private file have one writer
        turn = None
        while turn is None:  # until the turn before it stays as it was seen
            turn = _store(home, ask, task, former, message, before_store)
    fault = None
    try:
        home.wake()
    except ShunterError as exc:
        fault = exc
    return Said(home.store.load_task(task.id), turn, warn_stopped(home, task), fault)


def needs_fresh(home: Home, task_id: str) -> bool:
    """Whether a follow-up would be refused for want of a session; `--fresh` begins one."""
    try:
        turns = home.reading.load_turns(task_id)
        _require_session(home.reading.load_task(task_id), turns, _former_brief(home, turns))
    except ShunterError as exc:
        return exc.code == "SESSION_UNBOUND"
    return False


def _store(
    home: Home, ask: SayAsk, task: Task, former: Brief, message: str, before_store: Callable[[], object]
) -> Turn | None:
    """None: the last turn was open, and is over or repeated by now."""
    turns = home.store.load_turns(task.id)
    is_open = turns[-1].step != Step.SETTLED
    if is_open and not ask.interrupt:
        raise _busy(turns[-1])
    waits = home.store.load_follow_up(turns[-1])
    if is_open and waits is not None:
        hint = f"shunter wait {task.id}, or give it up with shunter cancel {task.id}"
        raise ShunterError("TASK_BUSY", f"the message of turn {waits.number} is not delivered yet", hint=hint)
    _refuse_hopeless(home, home.store.load_task(task.id), turns)  # another follow-up may have come in between
    if ask.fresh:
        message = checked_prompt(f"{_retold(home, turns)}\n\n{message}".encode())
    number = len(turns) + 1
    turn = Turn(
        turn_id(task.id, number),
        task.id,
        number,
        TurnState.QUEUED,
        Step.WAITING,
        created_at=time.time(),
        fresh_session=ask.fresh,
        account=account_of(task),
    )
    row = Row(
        turn_id=turn.id,
        task_id=task.id,
        summary=task.title,
        requirements=requirements_of(task, former.adapter, home.store.load_project(task).object_format),
        priority=task.options.priority,
        pinned_host=task.host,
    )
    write_brief(home.places.prompts_dir, turn.id, replace(former, prompt=message, new_session_id=str(uuid.uuid4())))
    is_stored = False
    try:
        before_store()
        if not is_open:
            home.store.add_turn(turn, row, actor=ask.actor)
            is_stored = True
        elif home.store.interrupt_turn(turn, row, actor=ask.actor, now=time.time()):
            is_stored = True
            if turns[-1].step == Step.WAITING:
                settle_waiting(home, task, home.store.load_turn(turns[-1].id), actor=ask.actor)
    finally:
        if not is_stored:
            remove_brief(home.places.prompts_dir, turn.id)
    return turn if is_stored else None


def _former_brief(home: Home, turns: Sequence[Turn]) -> Brief:
    """Of the last turn whose brief is there. Raises IO when none is."""
    for turn in reversed(turns[1:]):
        with suppress(ShunterError):
            return read_brief(home.places.prompts_dir, brief_id(turn))
    return read_brief(home.places.prompts_dir, turns[0].id)


def _busy(turn: Turn) -> ShunterError:
    hint = f"shunter wait {turn.task_id}, or say it with --interrupt"
    return ShunterError("TASK_BUSY", f"turn {turn.number} of task {turn.task_id} is not over", hint=hint)


def _refuse_hopeless(home: Home, task: Task, turns: Sequence[Turn]) -> None:
    if task.state == TaskState.CLOSED:
        raise ShunterError("TASK_CLOSED", f"task {task.id} is closed", hint="submit a new task")
    if task.state == TaskState.ABANDONED or task.host is None:
        if turns and turns[-1].step != Step.SETTLED:
            hint = f"shunter wait {task.id}, or cancel it and submit it anew"
            raise ShunterError("TASK_BUSY", f"task {task.id} was not started yet", hint=hint)
        raise ShunterError("TASK_CLOSED", f"task {task.id} never ran on any host", hint="submit it again")
    limit = task.options.max_followups
    had = sum(map(is_follow_up, turns))
    if limit is not None and had >= limit:
        text = f"task {task.id} had {had} follow-ups, and --max-followups allows {limit}"
        raise ShunterError("FOLLOWUP_LIMIT", text, hint="submit a new task from its branch with --base")
    home.host(task.host)  # its workspace is there and nowhere else
    refuse_twin(home, task.host)


def _require_session(task: Task, turns: Sequence[Turn], brief: Brief) -> None:
    """An agent without sessions is simply run again. An id that we chose is no session before the agent began one."""
    first = launch_of(task, brief, session_id=None, permission=task.permission)
    was_reached = any(map(has_reached_agent, turns))
    if (first.session is not None or first.session_id is not None) and (task.session_id is None or not was_reached):
        text = f"no message of task {task.id} has reached its agent, so there is no session"
        if was_reached:
            text = f"the agent of task {task.id} named no session that it could be asked for again"
        hint = f"shunter say --fresh {task.id} … starts a new session on the same branch"
        raise ShunterError("SESSION_UNBOUND", text, hint=hint)


def _refuse_failing(home: Home, task: Task, turns: Sequence[Turn]) -> None:
    account, host = account_of(task), task.host or ""
    cleared_at = home.store.load_clearance(host, account) if account is not None else None
    words = judge_session(turns[::-1], cleared_at=cleared_at, rule=retry_rule(home.config))
    if words is not None:
        hint = f"shunter say --fresh {task.id} …, or where the fault was not the session's: shunter host enable {host}"
        raise ShunterError(
            "SESSION_FAILING", f"the session of task {task.id} gets no further message: {words}", hint=hint
        )


def _message(ask: SayAsk, last: Turn) -> str:
    words = "" if ask.message is None else ask.message.decode("utf-8", "surrogateescape")
    if not ask.answers:
        return words
    questions = last.outcome.questions if last.outcome is not None else ()
    answered = answer_questions(questions, ask.answers, in_part=bool(words.strip()))
    return f"{answered}\n\n{words}" if words.strip() else answered


def answer_questions(questions: Sequence[Question], answers: Sequence[str], *, in_part: bool = False) -> str:
    """The prompt that answers them: each question with what was chosen. Raises ANSWER_INVALID.

    `in_part`: there is a message as well, which may say what is left.
    """
    if not questions:
        raise ShunterError("ANSWER_INVALID", "the last turn asked nothing", hint="say it without --answer")
    chosen: dict[int, str] = {}
    for answer in answers:
        number, words = _split_answer(answer, questions)
        if number in chosen:
            raise ShunterError("ANSWER_INVALID", f"question {number} is answered twice")
        chosen[number] = _option(number, questions[number - 1], words)
    left = [number for number in range(1, len(questions) + 1) if number not in chosen]
    if left and not in_part:
        text = f"question {left[0]} is not answered: {sanitised_summary(questions[left[0] - 1].text)}"
        hint = f"add --answer {left[0]}=…, or a message that says what is to be done about it"
        raise ShunterError("ANSWER_INVALID", text, hint=hint)
    lines = []
    for number, words in sorted(chosen.items()):
        lines += [f"Question: {questions[number - 1].text}", f"Answer: {words}", ""]
    return "\n".join(lines).rstrip()


def _split_answer(answer: str, questions: Sequence[Question]) -> tuple[int, str]:
    """`1=…` names its question; without that there must be only one."""
    if len(questions) == 1 and answer.strip() in questions[0].options:
        return 1, answer
    head, equals, rest = answer.partition("=")
    number = _number(head) if equals else None
    if number is not None:
        if not 1 <= number <= len(questions):
            raise ShunterError("ANSWER_INVALID", f"--answer {answer}: there are questions 1 to {len(questions)}")
        return number, rest
    if len(questions) > 1:
        text = f"--answer {answer}: {len(questions)} questions are open; the form is QUESTION=ANSWER"
        raise ShunterError("ANSWER_INVALID", text, hint="--answer 1=2 --answer 2='some words'")
    return 1, answer


def _option(number: int, question: Question, words: str) -> str:
    """The text of an option comes before its number."""
    words = words.strip()
    if not words:
        raise ShunterError("ANSWER_INVALID", f"the answer to question {number} is empty")
    place = _number(words)
    if place is None or not question.options or words in question.options:
        return words
    if not 1 <= place <= len(question.options):
        text = f"question {number} has options 1 to {len(question.options)}, not {words}"
        raise ShunterError("ANSWER_INVALID", text)
    return question.options[place - 1]


def _number(words: str) -> int | None:
    """None: no whole number. One that is too long for any list of ours counts as 0, which is in none."""
    found = re.fullmatch(r"\s*([+-]?[0-9]+)\s*", words)
    if found is None:
        return None
    return int(found[1]) if len(found[1]) < 10 else 0


def _retold(home: Home, turns: Sequence[Turn]) -> str:
    """What a new session must know of the earlier ones."""
    told = ["This continues earlier work on this branch; its commits are in the history. What was said so far:"]
    for turn in turns:
        try:
            prompt = read_brief(home.places.prompts_dir, brief_id(turn)).prompt.strip()
        except ShunterError:
            continue
        if not turn.repeat_number:
            told.append(f"\n[turn {turn.number}, asked]\n{prompt[:RETOLD_CHARACTERS]}")
        if turn.step != Step.SETTLED:
            told.append(f"[turn {turn.number}, interrupted before it was over]")
        elif turn.outcome is not None:
            answer = turn.outcome.summary.strip() or turn.outcome.evidence
            told.append(f"[turn {turn.number}, ended as {turn.outcome.outcome}]\n{answer[:RETOLD_CHARACTERS]}")
            told += [f"[turn {turn.number}, question] {each.text}" for each in turn.outcome.questions]
    told.append("\n[now]")
    return "\n".join(told)
