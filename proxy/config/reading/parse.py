"""parse: a mapping of names to texts becomes a Config, or one ConfigError that names every bad value.

Everything is read before anything is refused. Of files only those are
looked at that the configuration names: trust anchors, token, trace attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.config import inbound, outbound, telemetry
from proxy.config.control import control_addr, stream_limits
from proxy.config.identity import read_identity
from proxy.config.model import Config
from proxy.config.reading.reader import Reader
from proxy.config.reading.variables import VARIABLES

EX_USAGE: Final = 64
"""The exit status of a command that cannot read its configuration (sysexits.h)."""


class ConfigError(Exception):
    """`str()` is the text for stderr; the ERROR lines in `lines` were logged already."""

    def __init__(self, text: str, lines: tuple[str, ...]) -> None:
        super().__init__(f"Invalid configuration: {text}")
        self.lines: Final = lines


def parse(env: Mapping[str, str]) -> Config:
    reader = Reader(env)
    values: dict[str, Any] = {}
    for row in VARIABLES:
        values[row.attribute] = reader.read(row.name, row.syntax, row.default, row.prefix)
    stream_limits(reader, values)
    outbound.read(reader, values)
    inbound.read(reader, values)
    # In the order in which Linkerd gives up: the first fault's text is the one that stderr shows.
    values["destination_svc"] = control_addr(reader, "DESTINATION_SVC", "no destination service configured")
    values["policy_svc"] = control_addr(reader, "POLICY_SVC", "no policy service configured")
    values["policy_workload"] = reader.text("POLICY_WORKLOAD")
    if values["policy_workload"] is None:
        reader.refuse("LINKERD2_PROXY_POLICY_WORKLOAD must be set with LINKERD2_PROXY_POLICY_SVC_ADDR")
    values["trace_collector_svc"] = control_addr(reader, "TRACE_COLLECTOR_SVC")
    telemetry.read(reader, values)
    read_identity(reader, values)
    if reader.stop:
        raise ConfigError(reader.stop, tuple(reader.lines))
    return Config(**values)
