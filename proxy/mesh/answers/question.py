"""Question: what a client asked, as a value, and how its answer becomes messages.

All clients that ask the same question get the same answer: it is made once per state, compared with the one before, and
encoded once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from proxy.mesh.store.snapshot import View

V = TypeVar("V")

NOT_FOUND = grpc.StatusCode.NOT_FOUND
INVALID_ARGUMENT = grpc.StatusCode.INVALID_ARGUMENT
FAILED_PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
INTERNAL = grpc.StatusCode.INTERNAL
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
UNKNOWN = grpc.StatusCode.UNKNOWN
PERMISSION_DENIED = grpc.StatusCode.PERMISSION_DENIED
RESOURCE_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


class Refusal(Exception):
    """Raised in place of an answer: a status and a text. Equal refusals are equal values."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusal) and (self.code, self.text) == (other.code, other.text)

    def __hash__(self) -> int:
        return hash((self.code, self.text))


class Finished(Exception):
    """The stream ends without an error; its client should ask again."""


@dataclass(frozen=True, slots=True)
class Question(Generic[V]):
    """Derive a frozen dataclass: its fields are what was asked, and equal questions are one.

    By default an answer is one message, sent whole whenever it changes. A question without an answer is refused when it
    is first asked; on a stream that is open by then, nothing is sent until there is an answer again.
    """

    def answer(self, view: View) -> V | Refusal:
        """The answer in this state: a value that can be compared. Everything that it depends on is read through the
        view.
        """
        raise NotImplementedError

    def messages(self, previous: V | None, now: V | Refusal) -> Iterable[Message]:
        """The messages for a client that last got the answer `previous` (None: none yet). Refusal or Finished ends the stream.

        A client that is sent nothing still has the answer `previous`, unless that was none.
        """
        if isinstance(now, Refusal):
            if previous is None:
                raise now
            return ()
        message: Any = now
        return () if now == previous else (message,)
