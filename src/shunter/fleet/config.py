"""Configuration: the user's `config.toml` and a project's `shunter.toml`, read strictly (P16).

Whatever is wrong is told at once and completely: file, key, value, allowed form. Values of `env` are never shown.
Precedence: command line, project, user, built-in; each effective value remembers where it came from.

A project's file comes with a cloned repository, so it must not make shunter run what the user never chose: it cannot
give a command line (`exec:`, `acp:`) nor take the sandbox away (`unattended`). Both are for the user's own file
(decision 3).
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..agents.table import COMMANDS, MODULES, is_command_line
from ..wire.errors import ShunterError
from ..wire.ids import is_host_name
from . import forms
from .forms import Form, FormError
from .places import Places

PROJECT_FILE = "shunter.toml"
BUILT_IN, COMMAND_LINE = "built-in", "command line"
FILE_LIMIT_BYTES = 1 << 20
REMEDY = "mend what is named, or move the file aside: without it everything has a built-in value"

_PERMISSION = forms.choice("workspace", "unattended")


class Key(NamedTuple):
    """One key: what it may hold, what it is without a file (None: nothing), and a few words for its page."""

    form: Form
    built_in: Any
    meaning: str


DEFAULTS: dict[str, Key] = {
    "agent": Key(forms.text, None, "a name from `[agents]`, a built-in agent, or `exec:` or `acp:` and a command line"),
    "model": Key(forms.text, None, "as the agent calls it"),
    "effort": Key(forms.text, None, "as the agent calls it"),
    "base": Key(forms.text, None, "commit or ref that a task starts from; otherwise HEAD"),
    "wip": Key(forms.flag, False, "start from the working tree, with what is not committed"),
    "include": Key(forms.texts, (), "patterns of untracked files that go along with `wip`"),
    "source": Key(
        forms.choice("home", "origin"), "home", "who brings the base to the host: home pushes it, or it is fetched"
    ),
    "publish": Key(
        forms.choice("none", "push"), "none", "besides home, where results go: `push` is a branch of origin"
    ),
    "timeout": Key(forms.duration, None, "of a turn; otherwise `limits.timeout`; 0 is no limit"),
    "permission": Key(_PERMISSION, "workspace", "the agent's own sandbox, or none"),
    "max_turns": Key(forms.whole(1), None, "steps that the agent may take in a turn"),
    "max_budget_usd": Key(forms.money, None, "money that the agent may spend in a turn"),
    "max_followups": Key(forms.whole(0), None, "of a task"),
    "close_on": Key(forms.choice("never", "done", "any"), "never", "the outcome that closes a task by itself"),
    "env_profile": Key(forms.text, None, "environment file on the host, mode 0600"),
    "host": Key(forms.text, None, "pins tasks to this host"),
    "memory_mb": Key(forms.whole(1), None, "to reserve on the host for a turn"),
    "priority": Key(forms.whole(-1000, 1000), 0, "higher goes first"),
}
LIMITS: dict[str, Key] = {
    "timeout": Key(forms.duration, 7200.0, "of a turn whose task gives none; 0 is no limit"),
    "output_cap_mb": Key(forms.whole(1, 1 << 20), 256, "of a turn's output; the rest is dropped"),
    "tail_kb": Key(forms.whole(1, 1 << 20), 64, "of the output's end that are always kept"),
    "term_grace_s": Key(forms.duration, 10.0, "between TERM and KILL"),
    "quiet_s": Key(forms.duration, 30.0, "without movement before a lost turn is given up"),
    "silent_s": Key(forms.duration, 600.0, "without output, after which a running turn is called silent; 0 is never"),
    "background_grace_s": Key(forms.duration, 2.0, "for what the agent left running when it ended"),
}
RETRY: dict[str, Key] = {
    "overload": Key(forms.whole(0, 100), 3, "repeats of a turn that an overloaded provider ended; 0 is none"),
    "overload_pause": Key(
        forms.duration, 30.0, "before the first of them; before each further one four times as long, up to 4 hours"
    ),
    "quick_failures": Key(
        forms.whole(0, 16), 3, "in a row, without a tool call or a token, that stop an account or a session; 0 is never"
    ),
    "quick_pause": Key(
        forms.duration, 900.0, "until one task tries such an account; twice as long after each failure, up to 4 hours"
    ),
}
HOST: dict[str, Key] = {
    "name": Key(forms.text, None, "lower-case letters, digits, `.`, `_`, `-`"),
    "slots": Key(forms.whole(1, 1000), 1, "turns at the same time"),
    "memory_mb": Key(forms.whole(64), None, "budget for reservations; otherwise they are not counted"),
    "reserve_mb": Key(forms.whole(0), None, "instead: the budget is all memory of the host less this"),
    "ssh": Key(
        forms.ssh_target, None, "how ssh calls it: a name of your ssh configuration, or user@machine; else this one"
    ),
    "ssh_command": Key(forms.texts, (), "the program and its leading options; otherwise `ssh`"),
    "tags": Key(
        forms.tags, (), "capabilities that tasks may ask for; `origin:MACHINE` for one it may fetch from and push to"
    ),
    "data_root": Key(forms.any_path, None, "there; otherwise `$XDG_DATA_HOME/shunter`"),
    "python": Key(forms.text, None, "that runs the helper there, 3.9 or newer"),
    "enabled": Key(forms.flag, True, "takes new turns"),
}
AGENT: dict[str, Key] = {
    "adapter": Key(forms.choice(*sorted(MODULES)), None, "may be left out where NAME is one of these"),
    "command": Key(forms.texts, None, "program and leading arguments; needed for `exec` and `acp`"),
    "env": Key(forms.variables, None, "variables for the agent; the values are never shown"),
    "model": Key(forms.text, None, "before `defaults.model`"),
    "effort": Key(forms.text, None, "before `defaults.effort`"),
    "permission": Key(_PERMISSION, None, "before `defaults.permission`"),
    "resume": Key(forms.texts, None, "of `exec`: its command line for follow-ups, with `{session_id}`"),
    "fields": Key(forms.field_paths, None, "of `exec`: where its JSON lines hold what; see agents.md"),
}
NOT_YET = {
    "slurm": "Slurm hosts are not supported by this version",
}


@dataclass(frozen=True, slots=True)
class HostConfig:
    name: str
    slots: int = 1
    memory_mb: int | None = None  # budget for reservations; None = not counted
    reserve_mb: int | None = None  # instead: all memory of the host less this
    ssh: str | None = None  # None = this machine
    ssh_command: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    data_root: str | None = None  # as the host reads it; None = its own place
    python: str | None = None
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class AgentConfig:
    adapter: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    model: str | None = None
    effort: str | None = None
    permission: str | None = None
    resume: tuple[str, ...] = ()
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value; `source` is "built-in", "command line" or the file it came from."""

    key: str
    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Config:
    hosts: tuple[HostConfig, ...]
    agents: Mapping[str, AgentConfig]
    settings: Mapping[str, Setting]  # by dotted key, in the order of `config show`

    def value(self, key: str) -> Any:
        """The effective value of a dotted key, such as `defaults.agent`; durations are seconds."""
        return self.settings[key].value

    def source(self, key: str) -> str:
        return self.settings[key].source


def load_config(places: Places, project_root: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read both files and merge them with `overrides` (dotted keys, from the command line; None = not given).

    Without files there is one host, `local`, with one slot. Raises CONFIG_INVALID with every fault, one a line.
    """
    reader = _Reader()
    user = read_toml(places.config_file, required=places.config_given)
    reader.take_user(str(places.config_file), user)
    if project_root is not None:
        project = project_root / PROJECT_FILE
        reader.take_project(str(project), read_toml(project))
    reader.take_overrides(overrides or {})
    reader.check_agents()
    if reader.faults:
        raise ShunterError("CONFIG_INVALID", "\n".join(reader.faults), hint=REMEDY)
    return reader.config()


def check_tables(places: Places, tables: dict[str, Any]) -> None:
    """Raises CONFIG_INVALID when these, written into the user's file, could not be read any more."""
    reader = _Reader()
    reader.take_user(str(places.config_file), tables)
    reader.check_agents()
    if reader.faults:
        raise ShunterError("CONFIG_INVALID", "\n".join(reader.faults), hint="nothing was written")


def read_toml(file: Path, *, required: bool = False) -> dict[str, Any]:
    """The file's tables; {} when it is not there. Raises CONFIG_INVALID naming the file and the place of the fault."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise _fault(f"{file}: is not a regular file")
        with file.open("rb") as opened:
            data = opened.read(FILE_LIMIT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as exc:
        if required:
            raise _fault(f"{file}: does not exist (SHUNTER_CONFIG names it)") from exc
        return {}
    except OSError as exc:
        raise _fault(f"{file}: cannot be read: {exc.strerror}") from exc
    if len(data) > FILE_LIMIT_BYTES:
        raise _fault(f"{file}: is larger than {FILE_LIMIT_BYTES >> 10} KB")
    if not data.strip():
        return {}
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise _fault(f"{file}: is not UTF-8: byte 0x{data[exc.start]:02x} in line {line}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise _fault(f"{file}: is not TOML: {exc}") from exc
    except RecursionError as exc:
        raise _fault(f"{file}: is nested too deeply") from exc


def _fault(line: str) -> ShunterError:
    return ShunterError("CONFIG_INVALID", line, hint=REMEDY)


class _Reader:
    """Collects values, where they came from, and every fault."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.settings = {
            f"defaults.{key}": Setting(f"defaults.{key}", each, BUILT_IN) for key, (_, each, _) in DEFAULTS.items()
        }
        for table, keys in (("limits", LIMITS), ("retry", RETRY)):
            self.settings |= {
                f"{table}.{key}": Setting(f"{table}.{key}", each, BUILT_IN) for key, (_, each, _) in keys.items()
            }
        self.hosts: tuple[HostConfig, ...] = (HostConfig("local"),)
        self.agents: dict[str, AgentConfig] = {}
        self.sources: dict[str, str] = {"hosts": BUILT_IN}

    def config(self) -> Config:
        shown = {}
        for host in self.hosts:
            for key in HOST:
                if key != "name":
                    name = f"hosts.{host.name}.{key}"
                    shown[name] = Setting(name, getattr(host, key), self.sources.get(name, BUILT_IN))
        for agent, entry in self.agents.items():
            for key in AGENT:
                name, value = f"agents.{agent}.{key}", getattr(entry, key)
                # The names of variables may be shown, their values never.
                value = tuple(sorted(value)) if key == "env" else value
                shown[name] = Setting(name, value, self.sources.get(name, BUILT_IN))
        return Config(self.hosts, self.agents, {**self.settings, **shown})

    # The files

    def take_user(self, file: str, tables: dict[str, Any]) -> None:
        settings = {"defaults": DEFAULTS, "limits": LIMITS, "retry": RETRY}
        known = ("hosts", "agents", *settings)
        for key, value in tables.items():
            if key == "hosts":
                self._take_hosts(file, value)
            elif key == "agents":
                self._take_agents(file, value)
            elif key in settings:
                self._take_settings(file, key, value, settings[key])
            else:
                moved = "; as a default for tasks write it under [defaults]" if key in DEFAULTS else ""
                self._unknown(file, key, known, moved)

    def take_project(self, file: str, tables: dict[str, Any]) -> None:
        fine = dict(tables)
        for key, value in tables.items():
            if key == "agent" and isinstance(value, str) and is_command_line(value):
                adapter = value.partition(":")[0]
                text = (
                    "a command line is for your own config.toml: name it there as [agents.NAME] "
                    f'with adapter = "{adapter}"'
                )
                self._refuse(file, key, value, text)
                del fine[key]
            elif key == "permission" and value == "unattended":
                text = "only your own config.toml or the command line may take the sandbox away"
                self._refuse(file, key, value, text)
                del fine[key]
        self._take_settings(file, "defaults", fine, DEFAULTS, prefix="")

    def take_overrides(self, overrides: Mapping[str, Any]) -> None:
        for key, value in overrides.items():
            if value is not None:
                self.settings[key] = Setting(key, value, COMMAND_LINE)

    def check_agents(self) -> None:
        chosen = self.settings["defaults.agent"]
        name = chosen.value
        if name is None or chosen.source == COMMAND_LINE or name in self.agents or name in MODULES:
            return
        if not is_command_line(name):
            known = sorted({*self.agents, *MODULES})
            key = "agent" if chosen.source.endswith(PROJECT_FILE) else "defaults.agent"
            self._refuse(
                chosen.source, key, name, f"no agent has that name; known are {', '.join(known)}{_near(name, known)}"
            )

    # Tables

    def _take_settings(
        self, file: str, table: str, values: Any, known: Mapping[str, Key], *, prefix: str | None = None
    ) -> None:
        prefix = f"{table}." if prefix is None else prefix
        if not isinstance(values, dict):
            self._refuse(file, table, values, "expected a table")
            return
        for key, value in values.items():
            if key not in known:
                self._unknown(file, prefix + key, [prefix + each for each in known])
                continue
            name = f"{table}.{key}"
            try:
                self.settings[name] = Setting(name, known[key].form(value), file)
            except FormError as exc:
                self._refuse(file, prefix + key, value, f"expected {exc}")

    def _take_hosts(self, file: str, tables: Any) -> None:
        if not isinstance(tables, list) or not tables or not all(isinstance(each, dict) for each in tables):
            self._refuse(file, "hosts", tables, "expected tables, each begun with [[hosts]]")
            return
        hosts: dict[str, HostConfig] = {}
        for number, table in enumerate(tables, start=1):
            where = f"hosts[{number}]"
            values = self._values(file, where, table, HOST)
            name = values.get("name")
            if name is None:
                if "name" not in table:
                    self.faults.append(
                        f"{file}: {where}.name is missing; expected a name of lower-case letters, digits, . _ -"
                    )
            elif not is_host_name(name):
                self._refuse(
                    file,
                    f"{where}.name",
                    name,
                    "expected lower-case letters, digits, . _ - (it becomes part of a git ref)",
                )
            elif name in hosts:
                self._refuse(file, f"{where}.name", name, "another host has this name")
            elif "memory_mb" in values and "reserve_mb" in values:
                self._refuse(file, f"{where}.reserve_mb", values["reserve_mb"], "give this or memory_mb, not both")
            else:
                hosts[name] = HostConfig(**values)
                self.sources |= {f"hosts.{name}.{key}": file for key in values}
        self._check_data_roots(file, hosts)
        self.hosts = tuple(hosts.values())

    def _check_data_roots(self, file: str, hosts: Mapping[str, HostConfig]) -> None:
        # Two entries for one place would be one ledger with two ideas of its slots.
        seen: dict[tuple[str | None, str | None], str] = {}
        for host in hosts.values():
            first = seen.setdefault((host.ssh, host.data_root), host.name)
            if first != host.name:
                text = f"{first} is the same place on the same machine; give one of them another data_root"
                if host.data_root is None:
                    self.faults.append(f"{file}: hosts.{host.name}.data_root is missing: {text}")
                else:
                    self._refuse(file, f"hosts.{host.name}.data_root", host.data_root, text)

    def _take_agents(self, file: str, tables: Any) -> None:
        if not isinstance(tables, dict):
            self._refuse(file, "agents", tables, "expected tables, each begun with [agents.NAME]")
            return
        for name, table in tables.items():
            where = f"agents.{name}"
            if not is_host_name(name):
                self._refuse(file, where, name, "expected a name of lower-case letters, digits, . _ -")
            elif not isinstance(table, dict):
                self._refuse(file, where, table, "expected a table")
            else:
                self._take_agent(file, name, self._values(file, where, table, AGENT), "adapter" in table)

    def _take_agent(self, file: str, name: str, values: dict[str, Any], adapter_given: bool) -> None:
        if "adapter" not in values:
            if name not in MODULES:
                if not adapter_given:
                    known = ", ".join(f'"{each}"' for each in sorted(MODULES))
                    self.faults.append(f"{file}: agents.{name}.adapter is missing; expected one of {known}")
                return
            values["adapter"] = name
        if values["adapter"] in COMMANDS and not values.get("command"):
            such_as = ", ".join(f'"{word}"' for word in COMMANDS[values["adapter"]])
            text = f"expected a list of texts, such as [{such_as}]"
            self.faults.append(f"{file}: agents.{name}.command is missing; {text}")
        self._check_exec(file, name, values)
        self.agents[name] = AgentConfig(**values)
        self.sources |= {f"agents.{name}.{key}": file for key in values}

    def _check_exec(self, file: str, name: str, values: dict[str, Any]) -> None:
        if values["adapter"] != "exec":
            alone = [key for key in ("resume", "fields") if key in values]
            self.faults += [f"{file}: agents.{name}.{key} is for adapter exec alone" for key in alone]
        elif values.get("resume"):
            if "session" not in values.get("fields", {}):
                wanted = 'where the session\'s id stands in a line of JSON, such as "session_id"'
                self.faults.append(f"{file}: agents.{name}.fields.session is missing; with `resume` expected: {wanted}")
            if not any("{session_id}" in word for word in values["resume"]):
                self.faults.append(f"{file}: agents.{name}.resume: expected {{session_id}} in one of the texts")
            command = values.get("command", ())
            for place in ("{model}", "{effort}"):
                if any(place in word for word in values["resume"]) and not any(place in word for word in command):
                    self.faults.append(f"{file}: agents.{name}.resume: {place} is for what `command` names, too")
        if any("{session_id}" in word for word in values.get("command", ())):
            self.faults.append(f"{file}: agents.{name}.command: {{session_id}} is for `resume`, there is none before")

    def _values(self, file: str, where: str, table: dict[str, Any], known: Mapping[str, Key]) -> dict[str, Any]:
        values = {}
        for key, value in table.items():
            if key in NOT_YET and known is HOST:
                self._refuse(file, f"{where}.{key}", value, NOT_YET[key])
            elif key not in known:
                self._unknown(file, f"{where}.{key}", [f"{where}.{each}" for each in known])
            else:
                try:
                    values[key] = known[key].form(value)
                except FormError as exc:
                    shown = "…" if key == "env" else value
                    self._refuse(file, f"{where}.{key}", shown, f"expected {exc}")
        return values

    # Faults

    def _refuse(self, file: str, key: str, value: Any, text: str) -> None:
        self.faults.append(f"{file}: {key} = {_shown(value)}: {text}")

    def _unknown(self, file: str, key: str, known: Any, more: str = "") -> None:
        self.faults.append(
            f"{file}: {key} is no known key{_near(key, known) or '; known are ' + ', '.join(known)}{more}"
        )


def _near(given: str, known: Any) -> str:
    import difflib

    found = difflib.get_close_matches(given, list(known), n=1, cutoff=0.8)
    return f"; did you mean {found[0]}?" if found else ""


def _shown(value: Any) -> str:
    """The value on one line, as TOML would write it, at most 80 characters."""
    import json

    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:79] + "…"
