"""HPACK's decoder (RFC 7541) on interned fields: octets in, fields found; encoder.py is the other way.

A value travels as the literal octets it came in, and is known by its Field.
Every fault of a block raises ProtocolError with COMPRESSION, or HEADER_FLOOD
if it has more fields than are decoded, and is the connection's.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core import limits
from proxy.core.budget import REMEMBERED, Share, Table
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.h2.hpack import huffman
from proxy.http.h2.hpack.static_table import STATIC_TABLE
from proxy.http.headers import (
    Field,
    field,
    field_of_literal,
    judge_literal,
    known_literal,
)

TABLE_BYTES: Final = 4096
"""The protocol's default, which both our directions keep to: nothing is announced, so nothing waits for an
acknowledgement (RFC 7541 section 4.2)."""
_BLOCK_BYTES: Final = 900
_BLOCK_COPIES: Final = 4
"""What a remembered block costs beside its octets, with the head that was made of it, and how many times its octets."""

_static: Final[list[Field]] = [field(b"x", b"")] + [field(name, value) for name, value in STATIC_TABLE]
_names: Final[Table[bytes, bytes]] = Table("hpack_names", limits.NAMES_BYTES, 200, 2)
_known_name: Final = _names.recent.get


def _name_of(literal: bytes) -> bytes:
    name = _known_name(literal)
    if name is None:
        name = _names.find(literal, len(literal))
        if name is None:
            name = huffman.literal_value(literal)
            _names.keep(literal, name, len(literal))
    return name


def _read_integer(block: bytes, position: int, top: int) -> tuple[int, int]:
    """The rest of an integer whose first octet was all ones, and where it ends."""
    value = top
    shift = 0
    while True:
        octet = block[position]
        position += 1
        value += (octet & 127) << shift
        if octet < 128:
            return value, position
        shift += 7
        if shift > 28:
            raise ProtocolError("HPACK integer too long", Reason.COMPRESSION)


def _literal_end(block: bytes, position: int) -> int:
    """Where the string literal that begins here ends."""
    length = block[position] & 127
    position += 1
    if length == 127:
        length, position = _read_integer(block, position, 127)
    position += length
    if position > len(block):
        raise ProtocolError("HPACK literal cut short", Reason.COMPRESSION)
    return position


def _check_count(block: bytes) -> None:
    """HEADER_FLOOD if the block has more than HEADER_BLOCK_FIELDS fields, size updates included.

    Only the lengths are looked at. This is done before anything is decoded, so that the loop that decodes counts nothing.
    """
    fields_left = limits.HEADER_BLOCK_FIELDS
    position, size = 0, len(block)
    while position < size:
        if not fields_left:
            raise ProtocolError("header block of too many fields", Reason.HEADER_FLOOD)
        fields_left -= 1
        first = block[position]
        position += 1
        is_literal = first & 0xC0 == 0x40 or first & 0xE0 == 0
        top = 127 if first & 128 else 63 if first & 64 else 31 if first & 32 else 15
        index = first & top
        if index == top:
            _, position = _read_integer(block, position, 0)
        elif is_literal and not index:
            position = _literal_end(block, position)
        if is_literal:
            position = _literal_end(block, position)


def _no_field() -> Field:
    raise ProtocolError("HPACK index 0", Reason.COMPRESSION)


class ConstantBlock:
    """A block that inserts fields into the table and refers to none: it means the same whatever the table holds.

    Encoders without a table of their own send such blocks for every head (nginx does).
    """

    __slots__ = ("fields", "inserted", "size", "head")

    def __init__(self, fields: list[Field], inserted: list[Field]) -> None:
        self.fields = fields
        self.inserted = inserted
        self.size = sum([one.size for one in inserted])
        self.head: Any = None  # a RequestHead at a server, a ResponseHead at a client
        """The head that the reader made of the fields. The reader sets it, and copies it for each use."""


class Decoder:
    __slots__ = (
        "has_changed",
        "is_familiar",
        "constant",
        "heads",
        "_table",
        "_size",
        "_max_size",
        "_repeated",
        "_repeats",
        "_constants",
        "_heads_bytes",
        "_share",
    )

    def __init__(self) -> None:
        self.has_changed = False
        """The last block changed the table, so what was remembered of earlier blocks is no longer valid."""
        self.is_familiar = True
        """The last block changed nothing and held nothing new: worth remembering as a whole."""
        self.constant: ConstantBlock | None = None
        """Set if the last block is one that does not depend on the table."""
        self._table: list[Field] = []
        self._size = 0
        self._max_size = TABLE_BYTES
        self._repeated: ConstantBlock | None = None
        self._repeats = 0
        """A constant block that came last, so many times in a row: its fields are inserted when a block needs the table."""
        self._constants: dict[bytes, ConstantBlock] = {}
        self.heads: dict[bytes, Any] = {}  # as ConstantBlock.head
        """The heads that the reader made of whole blocks, by their octets; emptied when a block changes the table."""
        self._heads_bytes = 0
        self._share: Share | None = None
        """Made when something is remembered first."""

    def decode(self, block: bytes) -> list[Field]:
        constant = self.constant = self._constants.get(block)
        if constant is not None and constant.size <= self._max_size:
            if self.heads:
                self._drop_heads()
            self.has_changed = True
            self.is_familiar = False
            if constant is not self._repeated:
                self._insert_repeated()
                self._repeated = constant
            self._repeats += 1
            return constant.fields
        self._insert_repeated()
        self.constant = None
        self.has_changed = False
        self.is_familiar = True
        try:
            if len(block) > limits.HEADER_BLOCK_FIELDS:  # a shorter one cannot hold more
                _check_count(block)
            fields = self._decode(block)
        except IndexError:
            raise ProtocolError("HPACK block cut short or index beyond the table", Reason.COMPRESSION) from None
        if self.has_changed and self.heads:
            self._drop_heads()
        return fields

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        inserted: list[Field] = []
        is_constant = True
        table = self._table
        position, size = 0, len(block)
        while position < size:
            first = block[position]
            position += 1
            if first >= 128:
                index = first & 127
                if index == 127:
                    index, position = _read_integer(block, position, 127)
                if index > 61:
                    is_constant = False
                    fields.append(table[61 - index])
                else:
                    fields.append(_static[index] if index else _no_field())
                continue
            if first & 0xE0 == 0x20:
                position, is_constant = self._resize(block, position, first & 31, bool(fields)), False
                continue
            top = 63 if first & 64 else 15
            index = first & top
            if index == top:
                index, position = _read_integer(block, position, top)
            if index:
                name = _static[index].name if index < 62 else table[61 - index].name
                is_constant = is_constant and index < 62
            else:
                start = position
                position = _literal_end(block, position)
                name = _name_of(block[start:position])
            start = position
            position = _literal_end(block, position)
            if first & 0xF0 == 0x10:
                is_constant = False
                fields.append(judge_literal(name, block[start:position], True))
                continue
            found = known_literal((name, block[start:position]))
            if found is None:
                found = field_of_literal(name, block[start:position])
                self.is_familiar = is_constant = False
            fields.append(found)
            if first & 64:
                self._insert(found)
                inserted.append(found)
        if inserted and is_constant:
            self._remember(block, fields, inserted)
        return fields

    def _remember(self, block: bytes, fields: list[Field], inserted: list[Field]) -> None:
        self.constant = ConstantBlock(fields, inserted)
        cost = _BLOCK_BYTES + _BLOCK_COPIES * len(block)
        if self._has_room(block, cost):
            self._constants[block] = self.constant
            self._hold(cost)

    def keep_head(self, block: bytes, head: Any) -> bool:  # as ConstantBlock.head
        """Remember the head of a familiar block. Heads are never edited (head.py), so the same one can be handed out again."""
        cost = _BLOCK_BYTES + _BLOCK_COPIES * len(block)
        if self._has_room(block, cost):
            self.heads[block] = head
            self._heads_bytes += cost
            self._hold(cost)
            return True
        return False

    def _has_room(self, block: bytes, cost: int) -> bool:
        """Makes it, if the block may be remembered at all."""
        if len(block) > limits.REMEMBERED_TEXT_BYTES:
            return False
        share = self._share
        held_bytes = 0 if share is None else share.held_bytes
        count = len(self.heads) + len(self._constants)
        if count >= limits.CACHED_BLOCKS or held_bytes + cost > limits.CONNECTION_REMEMBERS_BYTES:
            self.forget()
        return True

    def _hold(self, cost: int) -> None:
        share = self._share
        if share is None:
            share = self._share = Share(REMEMBERED, "http2_decoded", self)
        share.add(cost)

    def _drop_heads(self) -> None:
        self.heads.clear()
        dropped = self._heads_bytes
        self._heads_bytes = 0
        if self._share is not None:
            self._share.give_back(dropped)

    def forget(self) -> None:
        """Forget what is remembered beside the table, which the peer relies on."""
        self._constants.clear()
        self.heads.clear()
        self._heads_bytes = 0
        if self._share is not None:
            self._share.give_back(self._share.held_bytes)

    def close(self) -> None:
        """The connection is over."""
        self.forget()
        if self._share is not None:
            self._share.close()
            self._share = None

    def _insert_repeated(self) -> None:
        """Insert what is due for `_repeated`: not more often than fills the table, which holds nothing else then."""
        constant = self._repeated
        if constant is None:
            return
        for _ in range(min(self._repeats, self._max_size // constant.size + 1)):
            self._table += constant.inserted
            self._size += constant.size
            if self._size > self._max_size:
                self._evict(self._max_size)
        self._repeated = None
        self._repeats = 0

    def _insert(self, new: Field) -> None:
        self._evict(self._max_size - new.size)
        if new.size <= self._max_size:
            self._table.append(new)
            self._size += new.size
        self.has_changed = True
        self.is_familiar = False

    def _resize(self, block: bytes, position: int, value: int, is_late: bool) -> int:
        if value == 31:
            value, position = _read_integer(block, position, 31)
        if value > TABLE_BYTES or is_late:
            raise ProtocolError("HPACK table size update late or over our limit", Reason.COMPRESSION)
        self._max_size = value
        self._evict(value)
        self.has_changed = True
        self.is_familiar = False
        return position

    def _evict(self, room: int) -> None:
        size = self._size
        count = 0
        for one in self._table:
            if size <= room:
                break
            size -= one.size
            count += 1
        self._size = size
        del self._table[:count]
