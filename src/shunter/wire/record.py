"""`dataclass(frozen=True)` for what the helper starts with, without the price of declaring it.

The standard one writes and compiles six functions for each class: 1.4 ms here, which for the messages and the adapters'
contract was half of every start of the helper, and git starts it anew for each push and fetch. These records take the
same arguments, compare, hash and print alike, and are frozen; for `dataclasses.replace`, `fields` and `asdict` they
are dataclasses, which is made true when somebody first asks. No inheritance, no options. Type checkers see the
standard one.
"""

from __future__ import annotations

__all__ = ["changed", "dataclass", "field", "field_names", "has_default"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass, field
    from typing import Any, Callable, Dict, Optional, Tuple, TypeVar

    R = TypeVar("R")
else:

    def dataclass(*, frozen: bool) -> Callable[[type], type]:
        assert frozen
        return _declare

    def field(*, default_factory: Callable[[], Any]) -> _Factory:
        return _Factory(default_factory)


class _Factory:
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make


class _Fields:
    """`__dataclass_fields__`, until it is read."""

    def __get__(self, instance: object, owner: type) -> Dict[str, Any]:
        import dataclasses

        body: Dict[str, Any] = {"__annotations__": _annotations(owner), "__module__": owner.__module__}
        for name, default in owner.__record_defaults__.items():  # type: ignore[attr-defined]
            factory = isinstance(default, _Factory)
            body[name] = dataclasses.field(default_factory=default.make) if factory else default
        made: Any = dataclasses.dataclass(frozen=True)(type(owner.__name__, (), body))
        found: Dict[str, Any] = made.__dataclass_fields__
        owner.__dataclass_fields__ = found  # type: ignore[attr-defined]
        return found


def _annotations(cls: type) -> Dict[str, Any]:
    # inspect costs 8 ms; and before Python 3.10 a class without annotations has no such attribute.
    found: Dict[str, Any] = cls.__dict__.get("__annotations__", {})  # noqa: RUF063
    return found


def _declare(cls: Any) -> Any:
    names = tuple(_annotations(cls))
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    for name, default in defaults.items():
        if isinstance(default, _Factory):
            delattr(cls, name)
    cls.__record_names__, cls.__record_defaults__ = names, defaults
    setattr(cls, "__match_args__", names)  # noqa: B010 (mypy forbids the assignment)
    cls.__dataclass_fields__ = _Fields()
    for method in (_init, _repr, _eq, _hash, _setattr, _delattr):
        setattr(cls, f"__{method.__name__[1:]}__", method)
    return cls


def _init(self: Any, *args: Any, **given: Any) -> None:
    names, defaults, values = self.__record_names__, self.__record_defaults__, self.__dict__
    if len(args) > len(names):
        raise TypeError(f"{type(self).__name__} takes {len(names)} arguments, not {len(args)}")
    values.update(zip(names, args))
    for name in names[len(args) :]:
        if name in given:
            values[name] = given.pop(name)
        elif name in defaults:
            default = defaults[name]
            values[name] = default.make() if isinstance(default, _Factory) else default
        else:
            raise TypeError(f"{type(self).__name__} lacks the argument {name!r}")
    if given:
        raise TypeError(f"{type(self).__name__} has no place for {sorted(given)[0]!r}")
    if hasattr(self, "__post_init__"):
        self.__post_init__()


def _repr(self: Any) -> str:
    return type(self).__qualname__ + "(" + ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items()) + ")"


def _eq(self: Any, other: object) -> Any:
    return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(tuple(self.__dict__[name] for name in self.__record_names__))


def _setattr(self: object, name: str, value: object) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name}")


def _delattr(self: object, name: str) -> None:
    raise AttributeError(f"{type(self).__name__} is frozen: {name}")


def changed(record: R, **values: Any) -> R:
    """The record with other values, like `dataclasses.replace`."""
    return type(record)(**{**vars(record), **values})


def field_names(kind: type) -> Optional[Tuple[str, ...]]:
    """Of a record or a standard dataclass; None for anything else."""
    names: Optional[Tuple[str, ...]] = getattr(kind, "__record_names__", None)
    if names is None and hasattr(kind, "__dataclass_fields__"):
        names = tuple(kind.__dataclass_fields__)
    return names


def has_default(kind: type, name: str) -> bool:
    if hasattr(kind, "__record_defaults__"):
        return name in kind.__record_defaults__
    from dataclasses import MISSING

    field = kind.__dataclass_fields__[name]  # type: ignore[attr-defined]
    return not (field.default is MISSING and field.default_factory is MISSING)
