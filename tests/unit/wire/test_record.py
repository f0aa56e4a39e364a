"""Records behave as the standard frozen dataclass of the same fields does."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from shunter.agents import contract
from shunter.wire import messages, record

RECORDS = [
    kind
    for module in (messages, contract)
    for _, kind in inspect.getmembers(module, inspect.isclass)
    if kind.__module__ == module.__name__ and record.field_names(kind) is not None
]


def twin(kind: type) -> Any:
    """The standard dataclass with the same fields, defaults and name."""
    return dataclasses.make_dataclass(
        kind.__name__,
        [
            (f.name, f.type, dataclasses.field(default=f.default, default_factory=f.default_factory))
            for f in fields(kind)
        ],  # type: ignore[call-overload]
        frozen=True,
    )


def fields(kind: Any) -> tuple[Any, ...]:
    return dataclasses.fields(kind)


def values(kind: type, word: str) -> dict[str, Any]:
    return {f.name: f"{word} {f.name}" for f in fields(kind)}


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_a_record_is_made_compared_shown_and_changed_like_a_dataclass(kind: Any) -> None:
    other = twin(kind)
    assert dataclasses.is_dataclass(kind)
    assert record.field_names(kind) == tuple(f.name for f in fields(other))
    given = values(kind, "a")
    one, two = kind(**given), kind(*given.values())
    assert one == two and hash(one) == hash(two) and one is not two
    assert repr(one) == repr(other(**given))
    assert dataclasses.asdict(one) == dataclasses.asdict(other(**given)) == vars(one)
    assert one != other(**given)
    for name in given:
        assert dataclasses.replace(one, **{name: "b"}) != one
        with pytest.raises(AttributeError):
            setattr(one, name, "b")
        with pytest.raises(AttributeError):
            delattr(one, name)
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_defaults_and_missing_arguments_are_those_of_a_dataclass(kind: Any) -> None:
    other = twin(kind)
    needed = {f.name: 1 for f in fields(kind) if not record.has_default(kind, f.name)}
    assert needed.keys() == {f.name for f in fields(other) if not record.has_default(other, f.name)}
    assert vars(kind(**needed)) == vars(other(**needed))
    for name in needed:
        with pytest.raises(TypeError):
            kind(**{key: value for key, value in needed.items() if key != name})
    with pytest.raises(TypeError):
        kind(**needed, no_such_field=1)
    with pytest.raises(TypeError):
        kind(*range(len(fields(kind)) + 1))


def test_a_default_that_is_made_is_made_each_time() -> None:
    first, second = messages.Facts(0, 0, None, None, None, None, ()), messages.Facts(0, 0, None, None, None, None, ())
    assert first.programs == {} and first.programs is not second.programs
