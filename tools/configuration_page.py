"""Writes the tables of docs/configuration.md from the code; with --check only says whether they are up to date."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from generated import write_or_check

from shunter.fleet import config
from shunter.fleet.forms import FormError

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"
HEAD = """# Configuration

Two files, both optional and both TOML. Whatever is wrong in them is told with file, key, value and the allowed form,
all faults at once. `shunter config show` prints every effective value and where it came from.

- `~/.config/shunter/config.toml` (or `$XDG_CONFIG_HOME/shunter/config.toml`, or the file that `SHUNTER_CONFIG` names):
  yours. Without it there is one host, `local`, with one slot.
- `shunter.toml` at the root of a project: defaults for its tasks, the keys of `[defaults]` without a table. It comes
  with a cloned repository, so it can neither give a command line (`agent = "exec:…"` or `"acp:…"`) nor take
  the sandbox away (`permission = "unattended"`).

The command line wins over the project, the project over your file, your file over what is built in.

Durations are texts such as `"90s"`, `"10m"`, `"2h"`, `"1d"`, or a number of seconds.

```toml
[[hosts]]
name = "local"
slots = 2

[agents.fixer]
adapter = "exec"
command = ["make", "fix"]

[defaults]
agent = "codex"
timeout = "1h"
```

Made by `tools/configuration_page.py`.
"""
NO_VALUE = object()


def words(form: Callable[[Any], Any]) -> str:
    """What a form allows, as it says itself when it refuses."""
    try:
        form(NO_VALUE)
    except FormError as exc:
        return str(exc)
    raise SystemExit(f"configuration_page: a form takes anything: {form}")


def table(keys: Mapping[str, config.Key]) -> list[str]:
    lines = ["| key | what for | allowed | built-in |", "| --- | --- | --- | --- |"]
    for name, key in keys.items():
        lines.append(f"| `{name}` | {key.meaning} | {words(key.form)} | {shown(key.built_in)} |")
    return lines


def shown(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, float):
        return f"`{value:g}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def page() -> str:
    parts = {
        "`[defaults]`, and `shunter.toml`": config.DEFAULTS,
        "`[[hosts]]`": config.HOST,
        "`[agents.NAME]`": config.AGENT,
        "`[limits]`": config.LIMITS,
        "`[retry]`": config.RETRY,
    }
    lines = [HEAD.rstrip("\n")]
    for heading, keys in parts.items():
        lines += ["", f"## {heading}", "", *table(keys)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_or_check(PAGE, page())
