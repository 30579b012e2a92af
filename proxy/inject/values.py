"""Check one Helm value against the default that it replaces.

Helm accepts any value anywhere, and only the API server, or a container that does not start, shows that it was wrong. Here it
is an error that names the value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

ENVIRONMENTS: Final = frozenset({"proxy.additionalEnv", "proxy.experimentalEnv"})
PORTS: Final = "proxy.ports."
_WITHOUT_DEFAULT: Final = frozenset({"proxy.cores", "proxy.runtime.workers.maximum"})
"""Whole numbers without a default."""
_RATIO: Final = "proxy.runtime.workers.maximumCPURatio"
_LARGEST: Final = 2**31 - 1


class ValueRefused(ValueError):
    """The text says which value is expected."""


def checked(path: str, value: Any, default: Any) -> Any:
    """Return the value as the sidecar's settings hold it; `default` decides its type. ValueRefused."""
    if isinstance(default, bool):
        return _switch(value)
    if path in ENVIRONMENTS:
        return _variables(value)
    if isinstance(default, list):
        return _texts(value)
    if isinstance(default, int):
        return _number(value, *_bounds(path))
    if path in _WITHOUT_DEFAULT:
        return None if value is None or value == "" else _number(value, 0, _LARGEST)
    if path == _RATIO:
        return _ratio(value)
    return scalar(value)


def scalar(value: Any) -> str:
    """Return a text as it is, a number as Helm spells it, and an empty text for null. ValueRefused."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueRefused("a text is expected")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _switch(value: Any) -> bool:
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ValueRefused("true or false is expected, without quotes")
    return value


def _bounds(path: str) -> tuple[int, int]:
    if path.startswith(PORTS):
        return 1, 65535
    return (-1 if path == "proxy.gid" else 0), _LARGEST


def _number(value: Any, least: int, largest: int) -> int:
    if isinstance(value, str) and value.isascii() and value.lstrip("-").isdigit() and len(value) < 12:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= largest:
        raise ValueRefused(f"a whole number from {least} to {largest} is expected")
    return value


def _ratio(value: Any) -> str | None:
    if value is None or value == "":
        return None
    try:
        ratio = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except (ValueError, OverflowError):
        ratio = -1.0
    if not 0.0 < ratio <= 1.0:
        raise ValueRefused("a number above 0.0 and up to 1.0 is expected")
    return str(value)


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueRefused("a list of texts is expected")
    return value


def _variables(value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise ValueRefused("a list of environment variables is expected, each with a name")
    for one in value:
        check_variable(one)
    return value


def check_variable(variable: Mapping[str, Any]) -> None:
    """Check that a container's `env` can contain the variable. ValueRefused."""
    name = variable.get("name")
    if not isinstance(name, str) or not name:
        raise ValueRefused(f"each variable has a name, which is a text: {dict(variable)!r}")
    if not isinstance(variable.get("value") or "", str):
        raise ValueRefused(f"the value of {name} has to be a text, in quotes: {variable['value']!r}")
    if not isinstance(variable.get("valueFrom") or {}, Mapping):
        raise ValueRefused(f"valueFrom of {name} is no mapping: {variable['valueFrom']!r}")
