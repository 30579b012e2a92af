"""Targets: under which name a line is printed and filtered, and what an event carries besides its text.

proxy.balance.queue is printed and filtered as `linkerd_proxy_balance::queue`: the package's name by the table below, the
rest joined by `::`. The short name, for people, is the package alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

_CRATES: Final = {
    "app": "linkerd_app",
    "worker": "linkerd_app::worker",
    "config": "linkerd_app::env",
    "admin": "linkerd_app_admin",
    "inbound": "linkerd_app_inbound",
    "outbound": "linkerd_app_outbound",
    "control": "linkerd_app_core::control",
    "core": "linkerd_app_core",
    "policy": "linkerd_app_core::policy",
    "http": "linkerd_proxy_http",
    "transport": "linkerd_proxy_transport",
    "balance": "linkerd_proxy_balance",
    "tap": "linkerd_proxy_tap",
    "tls": "linkerd_meshtls",
    "trace": "linkerd_opentelemetry",
}
"""Packages by the names under which Linkerd's users filter them; any other is `linkerd_<package>`."""

_KEY: Final = "sponson_event"

_SHORT: Final = {"linkerd2_proxy": "sponson", "linkerd_proxy::signal": "sponson", "linkerd_app::env": "config"}
_CRATE_PREFIXES: Final = ("linkerd_app_core::", "linkerd_app_", "linkerd_proxy_", "linkerd_", "sponson::")


def event(*spans: str, **fields: object) -> dict[str, Any]:
    """A value for `extra`: the names of the spans in which this happened, outermost first, and fields by name."""
    return {_KEY: (spans, fields)}


def event_of(record: logging.LogRecord) -> tuple[tuple[str, ...], Mapping[str, object]]:
    """Its spans and fields; both empty if it was logged without `event`."""
    found: tuple[tuple[str, ...], Mapping[str, object]] = getattr(record, _KEY, ((), {}))
    return found


def target_of(name: str) -> str:
    """The target that a Python logger's name stands for."""
    if name.startswith("sponson."):
        return name.replace(".", "::")
    if not name.startswith("proxy."):
        return name
    package, _, rest = name.removeprefix("proxy.").partition(".")
    crate = _CRATES.get(package, f"linkerd_{package}")
    return f"{crate}::{rest.replace('.', '::')}" if rest else crate


def short_of(name: str) -> str:
    """What a person reads in place of the target: the part of the program that logs."""
    if name.startswith("proxy."):
        return name.split(".", 2)[1]
    if name in _SHORT:
        return _SHORT[name]
    target = target_of(name)
    for prefix in _CRATE_PREFIXES:
        if target.startswith(prefix):
            return target.removeprefix(prefix).partition("::")[0]
    return target.partition("::")[0]
