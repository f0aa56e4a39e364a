"""Strict JSON for frozen dataclasses: an unknown field, a missing field or a wrong type is an error that says where.

Serves messages between home and host and every record that is written to disk (P16). Known forms: str, int, float,
bool, Optional[X], Tuple[X, ...], Dict[str, X], Any, Enum with string values, nested dataclasses. An int is accepted
where a float is wanted; a bool is never an int.

A type is turned into a function once: `list` decodes hundreds of records, and to look at types each time took five
times as long.
"""

from __future__ import annotations

import enum
import functools
import json
import typing
from typing import Any, Callable, Dict, List, Type, TypeVar, Union

from .errors import ShunterError
from .record import field_names, has_default

T = TypeVar("T")
Reader = Callable[[Any], Any]


class _WrongError(Exception):
    """What is wrong with a value; `place` grows on the way out."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.place = ""

    def within(self, part: str) -> _WrongError:
        self.place = part + self.place
        return self


def encode(record: Any) -> Any:
    """The record as plain JSON values; fields that hold None are kept, so every record of a kind has the same keys."""
    names = field_names(type(record))
    if names is not None:
        return {name: encode(getattr(record, name)) for name in names}
    if isinstance(record, enum.Enum):
        return record.value
    if isinstance(record, (tuple, list)):
        return [encode(item) for item in record]
    if isinstance(record, dict):
        return {key: encode(value) for key, value in record.items()}
    return record


def dumps(record: Any) -> str:
    """One line of compact JSON; bytes that were no UTF-8 (surrogates from file names) are escaped, never raw."""
    return json.dumps(encode(record), separators=(",", ":"), ensure_ascii=True)


def loads(kind: Type[T], text: Union[str, bytes], *, where: str = "record", code: str = "PROTOCOL") -> T:
    """Parse one record of the given kind; raises `code` with the place of the fault."""
    try:
        value = json.loads(text)
    except ValueError as exc:
        raise ShunterError(code, f"{where}: not JSON: {exc}") from exc
    except RecursionError as exc:
        raise ShunterError(code, f"{where}: nested too deeply") from exc
    return typing.cast(T, decode(kind, value, where=where, code=code))


def decode(kind: Any, value: Any, *, where: str = "record", code: str = "PROTOCOL") -> Any:
    """Check plain JSON values against a type and build it; raises `code` with the place of the fault."""
    try:
        return _reader(kind)(value)
    except _WrongError as fault:
        raise ShunterError(code, f"{where}{fault.place}: {fault.text}") from fault


@functools.cache
def _reader(kind: Any) -> Reader:
    origin = typing.get_origin(kind)
    arguments = typing.get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin is Union:
        return _optional_reader(_reader(next(each for each in arguments if each is not type(None))))
    if origin is tuple:
        return _list_reader(_reader(arguments[0]))
    if origin is dict:
        return _object_reader(_reader(arguments[1]))
    if field_names(kind) is not None:
        return _record_reader(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _word_reader(kind)
    return _plain_reader(kind)


def _optional_reader(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _list_reader(read: Reader) -> Reader:
    def read_list(value: Any) -> Any:
        if not isinstance(value, list):
            raise _WrongError("expected a list")
        found: List[Any] = []
        try:
            for each in value:
                found.append(read(each))  # noqa: PERF401 (its length tells the place of a fault)
        except _WrongError as fault:
            raise fault.within(f"[{len(found)}]")
        return tuple(found)

    return read_list


def _object_reader(read: Reader) -> Reader:
    def read_object(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _WrongError("expected an object")
        found: Dict[str, Any] = {}
        for key, each in value.items():
            try:
                found[key] = read(each)
            except _WrongError as fault:
                raise fault.within(f".{key}")
        return found

    return read_object


def _record_reader(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind)
    names = field_names(kind) or ()
    fields = [(name, _reader(hints[name]), has_default(kind, name)) for name in names]
    known = frozenset(names)

    def read_record(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _WrongError("expected an object")
        if not known.issuperset(value):
            raise _WrongError(f"unknown field {min(set(value) - known)!r}")
        found: Dict[str, Any] = {}
        for name, read, is_optional in fields:
            if name in value:
                try:
                    found[name] = read(value[name])
                except _WrongError as fault:
                    raise fault.within(f".{name}")
            elif not is_optional:
                raise _WrongError(f"field {name!r} is missing")
        try:
            return kind(**found)
        except ValueError as exc:  # a record's own __post_init__
            raise _WrongError(str(exc)) from exc

    return read_record


def _word_reader(kind: Any) -> Reader:
    def read_word(value: Any) -> Any:
        try:
            return kind(value)
        except ValueError as exc:
            raise _WrongError(f"{value!r} is none of {', '.join(str(each.value) for each in kind)}") from exc

    return read_word


def _plain_reader(kind: Any) -> Reader:
    def read_plain(value: Any) -> Any:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise _WrongError(f"expected {kind.__name__}, got {type(value).__name__}")

    return read_plain
