"""`shunter config`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...fleet.config import Setting
from ...service.home import Home
from ...wire.errors import ShunterError
from ..output import emit, json_option, say
from ..text import table, visible


@click.group("config")
def command() -> None:
    """Show the effective configuration."""


@command.command("show")
@json_option
def show(as_json: bool) -> None:
    """Print every effective value and where it came from.

    The command line comes before the project's shunter.toml, that before your config.toml, and that before what is
    built in. Of environment variables only the names are shown.
    """
    home = Home(project_root())
    settings = list(home.config.settings.values())
    if as_json:
        emit([{"key": each.key, "value": plain(each), "source": each.source} for each in settings])
        return
    say(f"# {home.places.config_file}{'' if home.places.config_file.exists() else ' (does not exist)'}")
    say(table(("KEY", "VALUE", "FROM"), [(each.key, written(each), each.source) for each in settings]))


def project_root() -> Path | None:
    from ...git.repository import open_repository

    try:
        return Path(open_repository(str(Path.cwd())).root)
    except ShunterError:
        return None


def plain(setting: Setting) -> Any:
    value = setting.value
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value


def written(setting: Setting) -> str:
    value = plain(setting)
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return visible(", ".join(value) if isinstance(value, list) else str(value)) or '""'
