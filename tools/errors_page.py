"""Writes docs/errors.md from the table of error codes; with --check only says whether it is up to date."""

from __future__ import annotations

from pathlib import Path

from generated import write_or_check

from shunter.wire.errors import CODES

PAGE = Path(__file__).parent.parent / "docs" / "errors.md"
GROUPS = {
    64: "usage and configuration: change the command or the file",
    69: "something is out of reach, and nothing was begun",
    70: "protocol, lost turn, publication",
    74: "local files, git, the dispatcher",
    75: "no room now",
    130: "Ctrl-C",
}


def page() -> str:
    lines = [
        "# Error codes",
        "",
        "Every error has a stable code: on standard error as `shunter: CODE: text`, and as `code` in `--json`.",
        "The exit status tells the group; `retry` says whether trying the same again can help.",
        "",
        "Made by `tools/errors_page.py` from `src/shunter/wire/errors.py`.",
    ]
    for status, heading in GROUPS.items():
        lines += ["", f"## {status}: {heading}", "", "| code | retry | meaning |", "| --- | --- | --- |"]
        lines += [
            f"| `{name}` | {'yes' if code.retryable else 'no'} | {code.meaning} |"
            for name, code in CODES.items()
            if code.exit_status == status
        ]
    missing = {code.exit_status for code in CODES.values()} - set(GROUPS)
    if missing:
        raise SystemExit(f"errors_page: no heading for exit status {sorted(missing)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_or_check(PAGE, page())
