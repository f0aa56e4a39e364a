"""The entry: a lazy group of commands, and the one place where errors become text, JSON and exit statuses."""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from .. import __version__
from ..wire.errors import ShunterError
from .entry import RAISE, leave_at_once, take_interrupts

# name: (module, what it does). The line is here so that `shunter --help` loads no command.
COMMANDS = {
    "submit": ("submit", "Hand over a task; prints its id at once."),
    "list": ("list", "Show tasks, newest first."),
    "status": ("status", "Show one task: state, turns, result, history."),
    "logs": ("logs", "Show what the agent did, live with -f."),
    "diff": ("diff", "Show the changes of a task."),
    "result": ("result", "Show how a task ended and what the agent said."),
    "wait": ("wait", "Block until tasks are over."),
    "say": ("say", "Follow up: a further turn in the same session and workspace."),
    "cancel": ("cancel", "End a task's turn, waiting or running."),
    "fetch": ("fetch", "Bring a result home again."),
    "publish": ("publish", "Show whether origin has a task's branch; try again."),
    "close": ("close", "Remove a task's workspace; the branch stays."),
    "reconcile": ("reconcile", "Ask about everything under way and repair what was left."),
    "config": ("config", "Show the effective configuration."),
    "hosts": ("hosts", "Show the pool: hosts, their state and room."),
    "host": ("host", "Add, prove, drain or remove a host."),
    "demo": ("demo", "Three tasks side by side in a throw-away project."),
    "completion": ("completion", "Print the completion script of a shell."),
}


class LazyGroup(click.Group):
    """Loads a command's module when it is called, so that `list` does not pay for `demo`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"shunter.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `shunter {near[0]}`?" if near else "`shunter --help` lists the commands"
            raise ShunterError("USAGE", f"there is no command {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            status = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader went, as `head` does; click itself would make that a failure
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
        return status

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="shunter %(version)s")
def root() -> None:
    """Put coding tasks on machines, get git branches back.

    \b
      shunter submit --agent codex "fix the flaky test in tests/test_io.py"
      shunter list
      shunter logs -f 7k2
      shunter result 7k2

    A task id may be shortened to any unique beginning. Every command takes --help;
    --json prints the record that the text was made from. Work goes on when the
    terminal is closed.
    """


def main() -> None:
    """Run one command. Exit statuses: docs/errors.md."""
    wants_json = "--json" in sys.argv
    mend_streams()
    try:
        status = invoke()
    except ShunterError as exc:
        status = report(exc.code, exc.text, exc.hint, exc.exit_status, as_json=wants_json)
    except click.exceptions.NoArgsIsHelpError as exc:
        click.echo(exc.format_message())
        status = 0
    except click.ClickException as exc:
        hint = exc.ctx.get_usage() if isinstance(exc, click.UsageError) and exc.ctx else None
        status = report("USAGE", exc.format_message(), hint, 64, as_json=wants_json)
    except (click.Abort, KeyboardInterrupt):
        status = 130  # P12: whatever was submitted goes on
    except OSError as exc:
        from ..host.durable import is_full

        code = "DISK_FULL" if is_full(exc) else "IO"
        status = report(code, f"{exc.filename or 'output'}: {exc.strerror}", None, 74, as_json=wants_json)
    leave(status if isinstance(status, int) else 0)


def invoke() -> Any:
    """Only in here Ctrl-C is an exception, so that what was begun is undone."""
    take_interrupts(RAISE)
    try:
        return root.main(standalone_mode=False, prog_name="shunter")
    finally:
        take_interrupts(leave_at_once)


def leave(status: int) -> NoReturn:
    """Without taking the interpreter apart, which is a tenth of the time of `list`; nothing of ours waits for it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # a stream that was closed outside is None
            stream.flush()
    os._exit(status)


def mend_streams() -> None:
    """A closed descriptor becomes /dev/null, and a character that the terminal's encoding lacks an escape."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 (for the whole run)
        elif mode == "w" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def report(code: str, text: str, hint: str | None, exit_status: int, *, as_json: bool) -> int:
    """On stderr for people; as `{"error": …}` on stdout with --json as well, so that a program finds it there."""
    from .text import visible

    if as_json:
        from ..wire.codec import dumps

        error: dict[str, Any] = {"code": code, "text": text, "hint": hint, "exit_status": exit_status}
        with contextlib.suppress(OSError):  # standard error still tells it
            sys.stdout.write(dumps({"error": error}) + "\n")
            sys.stdout.flush()
    first, *more = visible(text, keep="\n").split("\n")
    sys.stderr.write("".join(f"{line}\n" for line in (f"shunter: {code}: {first}", *(f"  {line}" for line in more))))
    if hint:
        sys.stderr.write("".join(f"  {line}\n" for line in visible(hint, keep="\n").splitlines()))
    return exit_status


if __name__ == "__main__":
    main()
