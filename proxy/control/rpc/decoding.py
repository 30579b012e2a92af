"""Decoding a message in shares: protobuf decodes one of 4 MiB in one piece, which takes 10 to 750 ms, by what it consists of.

A message is the concatenation of its fields, and merging the pieces of one in their order gives the same as decoding it whole. So a long
message is cut between its fields, and a field that is a long message itself is cut in the same way. What is cut is only looked
at as far as is needed for that; protobuf judges everything else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from proxy.core import limits
from proxy.core.loop.step_queue import StepQueue
from proxy.core.shares import Reading

M = TypeVar("M", bound=Message)

_PIECE_BYTES: Final = limits.DECODED_BYTES
_PIECE_FIELDS: Final = 1000
"""Fields in one piece at most; to find the end of each takes half a microsecond."""
_PIECE_PARTS: Final = 4
_FIELDS_PER_PART: Final = 32
"""What a piece counts for: 0.3 ms, and as much again for a hundred fields, which may be entries of a map (3 µs each)."""
_DEEPEST: Final = 16
"""Messages within messages that are cut; what is in deeper ones is decoded in one piece, by protobuf, which allows a hundred."""

_VARINT, _FIXED_64, _MESSAGE, _FIXED_32 = 0, 1, 2, 5


def read_message(kind: type[M], data: bytes) -> Reading[M]:
    """Decode the message. DecodeError if it is none."""
    found = kind()
    yield from _merge(found, data, 0, len(data), 0)
    return found


def _merge(message: Message, data: bytes, first: int, size: int, depth: int) -> Reading[None]:
    """Merge these octets of `data`, from `first` up to `size`, into the message."""
    position = first
    fields = 0
    while position < size:
        start = position
        tag, position = _varint(data, position, size)
        kind = tag & 7
        if kind == _MESSAGE:
            length, position = _varint(data, position, size)
            if length > _PIECE_BYTES and length <= size - position:
                within = _within(message, tag >> 3) if depth < _DEEPEST else None
                if within is not None:
                    message.MergeFromString(data[first:start])
                    yield _PIECE_PARTS
                    yield from _merge(within(), data, position, position + length, depth + 1)
                    first = position + length
            position += length
        elif kind == _VARINT:
            _, position = _varint(data, position, size)
        elif kind == _FIXED_64 or kind == _FIXED_32:
            position += 8 if kind == _FIXED_64 else 4
        else:
            position = size  # a group, or no field: protobuf judges what is left
        fields += 1
        if position - first >= _PIECE_BYTES or fields >= _PIECE_FIELDS:
            message.MergeFromString(data[first : min(position, size)])
            first = position
            yield _PIECE_PARTS + fields // _FIELDS_PER_PART
            fields = 0
    if position > size:
        raise DecodeError("a field is longer than the message that it is in")
    if first < size:
        message.MergeFromString(data[first:size])


def _varint(data: bytes, position: int, size: int) -> tuple[int, int]:
    """The number at this position, and where it ends."""
    found = shift = 0
    while position < size and shift < 64:
        octet = data[position]
        position += 1
        found |= (octet & 127) << shift
        if octet < 128:
            return found, position
        shift += 7
    raise DecodeError("a number without an end")


def _within(message: Message, number: int) -> Callable[[], Message] | None:
    """What gives the message into which the field of this number is to be merged; None if the field is no message."""
    field = message.DESCRIPTOR.fields_by_number.get(number)
    if field is None or field.message_type is None or field.message_type.GetOptions().map_entry:
        return None
    name = field.name
    is_repeated = field.is_repeated

    def found() -> Message:
        value: Any = getattr(message, name)  # it has the type that the field's description says
        if is_repeated:
            added: Message = value.add()
            return added
        value.SetInParent()
        single: Message = value
        return single

    return found


class Late(Generic[M]):
    """The messages of one call that are decoded later than they came: long ones, and those behind them."""

    __slots__ = ("_steps", "_kind", "_on_message", "_on_error", "_on_done", "_waiting", "_reading", "_is_due")

    def __init__(
        self,
        steps: StepQueue,
        kind: type[M],
        on_message: Callable[[M], None],
        on_error: Callable[[DecodeError], None],
        on_done: Callable[[], None],
    ) -> None:
        """`on_done` is called whenever nothing waits any more."""
        self._steps = steps
        self._kind = kind
        self._on_message = on_message
        self._on_error = on_error
        self._on_done = on_done
        self._waiting: deque[bytes] = deque()
        self._reading: Reading[M] | None = None
        self._is_due = False
        """Whether the step queue will call `step`."""

    @property
    def is_empty(self) -> bool:
        return self._reading is None and not self._waiting

    def add(self, data: bytes) -> None:
        """Decode it behind those that wait; the first share of it at once if none does."""
        is_first = self.is_empty
        self._waiting.append(data)
        if is_first:
            self._work()

    def drop(self) -> None:
        """The call is over. Idempotent."""
        self._waiting.clear()
        self._reading = None

    def step(self) -> None:
        """The step queue calls this."""
        self._is_due = False
        if not self.is_empty:
            self._work()

    def _work(self) -> None:
        try:
            self._decode()
        except DecodeError as error:
            self.drop()
            self._on_error(error)
            return
        finally:
            if not self.is_empty and not self._is_due:
                self._is_due = True
                self._steps.add(self)
        if self.is_empty:
            self._on_done()

    def _decode(self) -> None:
        """Decode one share."""
        left = limits.TURN_PARTS
        while left > 0 and not self.is_empty:
            if self._reading is None:
                self._reading = read_message(self._kind, self._waiting.popleft())
            try:
                left -= next(self._reading)
            except StopIteration as end:
                left -= _PIECE_PARTS
                self._reading = None
                self._on_message(end.value)
