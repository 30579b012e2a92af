"""Value: that it is what a frozen dataclass with slots is, for equality, hashes, texts, errors, and for dataclasses themselves."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace

import pytest

from proxy.core.value import Value


class Meta(Value):
    group: str
    name: str = ""
    port: int = field(default=0, compare=False)
    table: object = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        return f"{self.group}/{self.name}"


@dataclass(frozen=True, slots=True)
class AsDataclass:
    group: str
    name: str = ""
    port: int = field(default=0, compare=False)
    table: object = field(default=None, compare=False, repr=False)


class Other(Value):
    group: str
    name: str = ""


class Empty(Value):
    """No fields."""


class ByName(Value, kw_only=True):
    needed: int
    other: int | None = None


def test_a_value_is_made_by_position_and_by_name_and_has_defaults() -> None:
    assert [
        (one.group, one.name, one.port, one.table) for one in (Meta("a"), Meta("a", "b", 3), Meta(name="b", group="a"))
    ] == [
        ("a", "", 0, None),
        ("a", "b", 3, None),
        ("a", "b", 0, None),
    ]
    assert Meta("a", name="b").text == "a/b"
    assert (ByName(needed=1).needed, ByName(needed=1).other) == (1, None)


def test_values_are_equal_as_dataclasses_are() -> None:
    assert Meta("a", "b", 3, object()) == Meta("a", "b", 4)
    assert hash(Meta("a", "b", 3, object())) == hash(Meta("a", "b", 4))
    assert Meta("a", "b") != Meta("a", "c")
    assert Meta("a", "b") != Other("a", "b")
    assert Other("a", "b") != ("a", "b")
    assert Empty() == Empty()
    assert len({Empty(), Empty(), Other("a"), Other("a"), Other("b")}) == 3


def test_the_text_is_that_of_a_dataclass() -> None:
    assert repr(Meta("a", "b", 3, 4)) == repr(AsDataclass("a", "b", 3, 4)).replace("AsDataclass", "Meta")
    assert repr(Empty()) == "Empty()"


def test_a_value_cannot_be_changed_and_has_its_fields_only() -> None:
    made = Meta("a")
    for name in ("name", "unknown"):
        with pytest.raises(FrozenInstanceError, match=name):
            setattr(made, name, "b")
        with pytest.raises(FrozenInstanceError, match=name):
            delattr(made, name)
    assert not hasattr(made, "__dict__")
    assert made == Meta("a")


@pytest.mark.parametrize(
    ("kind", "given", "named", "text"),
    [
        (Meta, (), {"name": "b"}, "Meta() was not given the field 'group'"),
        (Meta, ("a",), {"names": "b"}, "Meta() has no field 'names'"),
        (Meta, ("a",), {"group": "b"}, "Meta() has no field 'group', or was given it by position, too"),
        (Meta, ("a", "b", 3, None, 5), {}, "Meta() was given 5 fields by position"),
        (ByName, (1,), {}, "ByName() was given 1 fields by position"),
        (Empty, (1,), {}, "Empty() was given 1 fields by position"),
    ],
)
def test_what_is_given_wrongly_is_named(
    kind: type[Value], given: tuple[object, ...], named: dict[str, object], text: str
) -> None:
    with pytest.raises(TypeError) as raised:
        kind(*given, **named)
    assert text in str(raised.value)


def test_dataclasses_take_it_for_one_of_theirs() -> None:
    made = Meta("a", "b", 3)
    assert is_dataclass(made)
    assert replace(made, name="c", port=4) == Meta("a", "c")
    assert replace(made, name="c").port == 3
    assert [(one.name, one.compare, one.repr) for one in fields(made)] == [
        (one.name, one.compare, one.repr) for one in fields(AsDataclass)
    ]
    assert dataclasses.asdict(Other("a", "b")) == {"group": "a", "name": "b"}
    with pytest.raises(TypeError):
        replace(made, names="c")  # type: ignore[call-arg]
    assert fields(ByName)[0].name == "needed"


def test_a_pattern_takes_its_fields_in_order() -> None:
    match Other("a", "b"):
        case Other("a", name):
            assert name == "b"
        case _:
            raise AssertionError
