"""Entries of `[[hosts]]` in the user's config.toml, written so that comments, order and layout of the rest stay.

Only `shunter host add` and `remove` come here, so only they load tomlkit. Whatever tomlkit makes is read again with
the strict reader and must differ from what stood there by the one entry, or nothing is written. The file is
replaced as a whole (a link to it stays one, its mode too), under a lock, and only if it is still what was read.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..host.durable import is_full
from ..host.flock import hold_lock
from ..wire.errors import ShunterError
from .config import FILE_LIMIT_BYTES, check_tables
from .places import Places

BOM = "\ufeff"
_HOSTS = re.compile(r"\s*\[\[\s*(hosts|\"hosts\"|'hosts')\s*\]\]")
_TABLE = re.compile(r"\s*\[+[^\[\],]+\]+\s*(#.*)?$")
LOCAL: Mapping[str, Any] = {"name": "local", "slots": 1}  # what is in the pool without any entry


def add_host_entry(places: Places, entry: Mapping[str, Any]) -> bool:
    """Append the entry. True when `local` was written too: with the first entry it would have left the pool."""
    wrote_local = False

    def change(text: str) -> str:
        nonlocal wrote_local
        before = tomllib.loads(text)
        wrote_local = "hosts" not in before
        added = [dict(LOCAL), dict(entry)] if wrote_local else [dict(entry)]
        changed = _appended(text, added)
        expected = {**before, "hosts": [*before.get("hosts", []), *added]}
        check_tables(places, expected)
        return _proved(changed, expected, places)

    _rewrite(places, change)
    return wrote_local


def update_host_entry(places: Places, name: str, values: Mapping[str, Any]) -> None:
    """Set keys of the entry of that name."""

    def change(text: str) -> str:
        expected = tomllib.loads(text)
        at = [each.get("name") for each in expected["hosts"]].index(name)

        def set_values(entries: Any, n: int) -> None:
            for key, value in values.items():
                entries[n][key] = value

        changed = _edited(text, at, len(expected["hosts"]), set_values)
        set_values(expected["hosts"], at)
        check_tables(places, expected)
        return _proved(changed, expected, places)

    _rewrite(places, change)


def remove_host_entry(places: Places, name: str) -> bool:
    """False when no entry has that name."""
    found = False

    def change(text: str) -> str:
        nonlocal found
        expected = tomllib.loads(text)
        names = [each.get("name") for each in expected.get("hosts", [])]
        found = name in names
        if not found:
            return text
        at = names.index(name)
        changed = _edited(text, at, len(names), None)
        expected["hosts"].pop(at)
        if not expected["hosts"]:
            del expected["hosts"]
        return _proved(changed, expected, places)

    _rewrite(places, change)
    return found


def _edited(text: str, at: int, number: int, change: Callable[[Any, int], None] | None) -> str:
    """The text with its entry number `at` of so many changed, or removed.

    tomlkit moves tables of one name together, so of a file with `[[hosts]]` here and there it sees the one table alone.
    """
    import tomlkit

    lines = re.split(r"(?<=\n)", text)
    begins = [n for n, line in enumerate(lines) if _HOSTS.match(line)]
    if len(begins) != number:  # hosts = [{ name = "a" }]
        document = tomlkit.parse(text)
        if change is not None:
            change(document["hosts"], at)
        else:
            document["hosts"].pop(at)
            if number == 1:
                document.remove("hosts")
        return tomlkit.dumps(document)
    begin = begins[at]
    ends = (n for n in range(begin + 1, len(lines)) if _TABLE.match(lines[n]))
    end = next(ends, len(lines))
    while end > begin + 1 and not lines[end - 1].split("#")[0].strip():
        end -= 1  # blank lines and comments behind it belong to what follows
    if change is None:
        while begin and end < len(lines) and not lines[begin - 1].strip() and not lines[end].strip():
            end += 1  # one blank line is left where two met
        if end == len(lines):
            while begin and not lines[begin - 1].strip():
                begin -= 1
        return "".join([*lines[:begin], *lines[end:]])
    document = tomlkit.parse("".join(lines[begin:end]))
    change(document["hosts"], 0)
    block = tomlkit.dumps(document)
    if "\r\n" in text:
        block = re.sub(r"(?<!\r)\n", "\r\n", block)
    return "".join([*lines[:begin], block, *lines[end:]])


def _appended(text: str, entries: list[dict[str, Any]]) -> str:
    import tomlkit
    from tomlkit.items import AoT, Array

    document = tomlkit.parse(text)
    hosts = document.get("hosts")
    if isinstance(hosts, Array):  # hosts = [{ name = "a" }]
        for entry in entries:
            table = tomlkit.inline_table()
            table.update(entry)
            hosts.append(table)
        return tomlkit.dumps(document)
    # At the end of the file, where nothing that stands there can come to belong to the new table.
    newline = "\r\n" if "\r\n" in text else "\n"
    made = tomlkit.document()
    tables = AoT([])
    for entry in entries:
        item = tomlkit.table()
        item.update(entry)
        tables.append(item)
    made.append("hosts", tables)
    block = tomlkit.dumps(made).strip("\n").replace("\n", newline) + newline
    gap = "" if not text.strip() else newline if text.endswith(("\n", "\r\n")) else newline * 2
    return text + gap + block


def _proved(changed: str, expected: Mapping[str, Any], places: Places) -> str:
    try:
        same = tomllib.loads(changed) == expected
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        text = f"{places.config_file}: cannot be changed without touching more than the host's entry"
        raise ShunterError("CONFIG_INVALID", text, hint="change the entry by hand; the file is as it was")
    return changed


def _rewrite(places: Places, change: Callable[[str], str]) -> None:
    path = Path(os.path.realpath(places.config_file))
    try:
        places.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_lock(str(places.state_dir / "config.lock")):
            _rewrite_locked(path, change)
    except OSError as exc:
        code = "DISK_FULL" if is_full(exc) else "IO"
        raise ShunterError(code, f"{exc.filename or path}: {exc.strerror}") from exc


def _rewrite_locked(path: Path, change: Callable[[str], str]) -> None:
    data = _read(path)
    text = (data or b"").decode("utf-8")  # the strict reader has taken it before
    bom = BOM if text.startswith(BOM) else ""
    changed = change(text.removeprefix(BOM))
    if bom + changed == text:
        return
    mode = stat.S_IMODE(path.stat().st_mode) if data is not None else 0o600
    aside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with aside.open("wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write((bom + changed).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        if _read(path) != data:  # an editor does not know our lock
            text = f"{path} was changed meanwhile; nothing was written"
            raise ShunterError("IO", text, hint="save it in the editor, then run the same command again")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(FILE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        return None
