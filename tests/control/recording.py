"""The answers of Linkerd's own controllers as messages: tests/data/control-plane/recording.json."""

from __future__ import annotations

import json
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message

RECORDING: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "control-plane" / "recording.json").read_text()
)

M = TypeVar("M", bound=Message)


def answered(method: str) -> list[str]:
    """The questions to which the method answered with messages."""
    return [question for question, answer in RECORDING[method].items() if answer["messages"]]


def first(method: str, question: str, message: M) -> M:
    """`message` filled with the first answer."""
    return parsed(RECORDING[method][question]["messages"][0], message)


def parsed(recorded: dict[str, Any], message: M) -> M:
    return ParseDict(_as_protobuf(recorded), message)


def _as_protobuf(value: Any) -> Any:
    """The recording writes IPv4 addresses with dots, the wire as a number."""
    if isinstance(value, list):
        return [_as_protobuf(one) for one in value]
    if isinstance(value, dict):
        return {key: int(IPv4Address(one)) if key == "ipv4" else _as_protobuf(one) for key, one in value.items()}
    return value
