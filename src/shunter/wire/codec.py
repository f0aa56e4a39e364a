"""Strict JSON for frozen dataclasses: an unknown field, a missing field or a wrong type is an error that says where.

Serves messages between home and host and every record that is written to disk (P16). Known forms: str, int, float,
bool, Optional[X], Tuple[X, ...], Dict[str, X], Any, Enum with string values, nested dataclasses. An int is accepted
where a float is wanted; a bool is never an int.
"""

from __future__ import annotations

import enum
import json
import typing
from typing import Any, Dict, Type, TypeVar, Union

from .errors import ShunterError
from .record import field_names, has_default

T = TypeVar("T")
_hints: Dict[type, Dict[str, Any]] = {}


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

    def fault(text: str) -> ShunterError:
        return ShunterError(code, f"{where}: {text}")

    origin = typing.get_origin(kind)
    if kind is Any:
        return value
    if origin is Union:
        if value is None:
            return None
        inner = [arg for arg in typing.get_args(kind) if arg is not type(None)]
        return decode(inner[0], value, where=where, code=code)
    if origin is tuple:
        if not isinstance(value, list):
            raise fault("expected a list")
        item = typing.get_args(kind)[0]
        return tuple(decode(item, each, where=f"{where}[{n}]", code=code) for n, each in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise fault("expected an object")
        inner_kind = typing.get_args(kind)[1]
        return {key: decode(inner_kind, each, where=f"{where}.{key}", code=code) for key, each in value.items()}
    if field_names(kind) is not None:
        return _decode_record(kind, value, where=where, code=code)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError as exc:
            raise fault(f"{value!r} is none of {', '.join(str(each.value) for each in kind)}") from exc
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    raise fault(f"expected {kind.__name__}, got {type(value).__name__}")


def _decode_record(kind: Any, value: Any, *, where: str, code: str) -> Any:
    if not isinstance(value, dict):
        raise ShunterError(code, f"{where}: expected an object")
    if kind not in _hints:
        _hints[kind] = typing.get_type_hints(kind)
    names = field_names(kind) or ()
    unknown = sorted(set(value) - set(names))
    if unknown:
        raise ShunterError(code, f"{where}: unknown field {unknown[0]!r}")
    arguments = {}
    for name in names:
        if name in value:
            arguments[name] = decode(_hints[kind][name], value[name], where=f"{where}.{name}", code=code)
        elif not has_default(kind, name):
            raise ShunterError(code, f"{where}: field {name!r} is missing")
    try:
        return kind(**arguments)
    except ValueError as exc:  # a record's own __post_init__
        raise ShunterError(code, f"{where}: {exc}") from exc
