"""Value: what `@dataclass(frozen=True, slots=True)` makes, without the time that it takes to make the class.

`@dataclass` writes the source of a class's methods and compiles it at each import: half a millisecond a class, and a sidecar has
fifty before it can answer. The methods of values are common to all of them and go by the list of fields. For everybody else a value
is a dataclass: type checkers read it as one (PEP 681), and `field(compare=False)`, `dataclasses.replace` and `fields` work.

A value's only base is Value, and it is made of its fields: there is no `__post_init__`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, dataclass_transform


class _Form(NamedTuple):
    setters: dict[str, Callable[[Any, Any], None]]
    """By the field's name, in order. They set a slot of an instance, which has no other way to be set."""
    defaults: dict[str, Any]
    given: dict[str, Any]
    """What the class was written with: defaults, and `field(...)` for some."""
    is_by_name: bool
    """Whether no field may be given by its position."""
    compared: Callable[[Any], Any]
    """The fields of an instance that say whether it equals another."""
    shown: tuple[str, ...]


class _AsDataclass:
    """The fields as dataclasses describe them, for whoever asks: few do, and late."""

    def __get__(self, instance: Value | None, owner: type[Value]) -> dict[str, Field[Any]]:
        form = owner._form
        namespace: dict[str, Any] = {
            "__annotations__": {name: owner.__annotations__[name] for name in form.setters},
            "__module__": owner.__module__,
            **form.given,
        }
        made: Any = dataclass(frozen=True)(type(owner.__name__, (), namespace))
        found: dict[str, Field[Any]] = made.__dataclass_fields__
        owner.__dataclass_fields__ = found
        return found


class _ValueClass(type):
    """Makes slots of the annotated names, since slots cannot be added to a class that is there."""

    _form: _Form
    __dataclass_fields__: Mapping[str, Field[Any]]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], kw_only: bool = False
    ) -> _ValueClass:
        if not bases:
            return super().__new__(mcs, name, bases, namespace)
        names = tuple(namespace.get("__annotations__", ()))
        given = {one: namespace.pop(one) for one in names if one in namespace}
        fields = {
            one: default if isinstance(default, Field) else field(default=default) for one, default in given.items()
        }
        compared = [one for one in names if one not in fields or fields[one].compare]
        shown = tuple(one for one in names if one not in fields or fields[one].repr)
        namespace |= {"__slots__": names, "__match_args__": () if kw_only else names}
        made = super().__new__(mcs, name, bases, namespace)
        setters = {one: made.__dict__[one].__set__ for one in names}
        defaults = {one: found.default for one, found in fields.items() if found.default is not MISSING}
        made._form = _Form(setters, defaults, given, kw_only, attrgetter(*compared) if compared else _nothing, shown)
        return made


def _nothing(value: object) -> tuple[()]:
    return ()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Value(metaclass=_ValueClass):
    __slots__ = ()
    __dataclass_fields__ = _AsDataclass()

    def __init__(self, /, *given: Any, **named: Any) -> None:
        kind = type(self)
        form = kind._form
        if given and (form.is_by_name or len(given) > len(form.setters)):
            raise TypeError(f"{kind.__name__}() was given {len(given)} fields by position")
        left = iter(form.setters.items())
        for one, (_, put) in zip(given, left, strict=False):
            put(self, one)
        for name, put in left:
            if name in named:
                put(self, named.pop(name))
            elif name in form.defaults:
                put(self, form.defaults[name])
            else:
                raise TypeError(f"{kind.__name__}() was not given the field {name!r}")
        if named:
            raise TypeError(
                f"{kind.__name__}() has no field {', '.join(map(repr, named))}, or was given it by position, too"
            )

    def __eq__(self, other: object) -> bool:
        kind = type(self)
        if type(other) is not kind:
            return NotImplemented
        compared = kind._form.compared
        return self is other or bool(compared(self) == compared(other))

    def __hash__(self) -> int:
        return hash(type(self)._form.compared(self))

    def __repr__(self) -> str:
        kind = type(self)
        return f"{kind.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in kind._form.shown)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")
