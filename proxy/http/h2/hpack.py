"""HPACK (RFC 7541) on interned fields: decoding finds fields, encoding finds octets.

Law: a value travels as the literal octets it came in, and is known by its
Field. The encoder indexes a field the second time it meets it and never
evicts, so that a header that varies per request does not displace those
that repeat, and the peer's caches keep hitting; a `date` is never indexed,
and a table that no longer fits the traffic is emptied whole. Every fault of a block raises ProtocolError
with COMPRESSION, and is the connection's.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core import limits
from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason
from proxy.http import huffman
from proxy.http.h2.static_table import STATIC_TABLE
from proxy.http.headers import (
    DATE,
    Field,
    field,
    field_of_literal,
    integer,
    judge_literal,
    known_literal,
    string_literal,
)

TABLE_BYTES: Final = 4096
"""The protocol's default, which both our directions keep to: nothing is announced, so nothing waits for an
acknowledgement (RFC 7541 section 4.2)."""
_SEEN_FIELDS: Final = 2048
_LEAST_LIST_BYTES: Final = 256
"""A status, a length and a date, and room for a little."""
_REFUSED_FIELDS: Final = 128
"""Fields met twice that found the table full, about twice what it holds, after which it is emptied and learns anew."""

_static: Final[list[Field]] = [field(b"x", b"")] + [field(name, value) for name, value in STATIC_TABLE]
_static_index: Final[dict[tuple[bytes, bytes], int]] = {
    entry: index for index, entry in reversed(list(enumerate(STATIC_TABLE, 1)))
}
_static_name_index: Final[dict[bytes, int]] = {
    name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE, 1)))
}

_names: Final[dict[bytes, bytes]] = {}
_new_names: Final[dict[bytes, bytes]] = {}


def _name_of(literal: bytes) -> bytes:
    name = _names.get(literal)
    if name is None:
        name = huffman.literal_value(literal)
        if len(_names) >= limits.INTERNED_FIELDS:
            _names.clear()
        _names[literal] = name
    return name


def _name_prefix(name: bytes, bits: int, pattern: int) -> bytes:
    index = _static_name_index.get(name)
    return bytes((pattern,)) + string_literal(name) if index is None else integer(index, bits, pattern)


def _unindexed_prefix(name: bytes) -> bytes:
    """The start of a literal without indexing, kept because a varying header needs it every time."""
    prefix = _new_names.get(name)
    if prefix is None:
        prefix = _name_prefix(name, 4, 0)
        if len(_new_names) >= limits.INTERNED_FIELDS:
            _new_names.clear()
        _new_names[name] = prefix
    return prefix


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


def _no_field() -> Field:
    raise ProtocolError("HPACK index 0", Reason.COMPRESSION)


class Steady:
    """A block that inserts fields and names none of the table's: it means the same, whatever the table holds.

    Encoders without a table of their own send such blocks for every head (nginx does).
    """

    __slots__ = ("fields", "inserted", "size", "head")

    def __init__(self, fields: list[Field], inserted: list[Field]) -> None:
        self.fields = fields
        self.inserted = inserted
        self.size = sum([one.size for one in inserted])
        self.head: Any = None
        """What its reader made of the fields; the reader's to set, and to copy."""


class Decoder:
    __slots__ = ("has_changed", "is_familiar", "steady", "_table", "_size", "_max_size", "_steady")

    def __init__(self) -> None:
        self.has_changed = False
        """The last block changed the table: what was remembered of earlier blocks is void."""
        self.is_familiar = True
        """The last block changed nothing and held nothing new: worth remembering as a whole."""
        self.steady: Steady | None = None
        """What is remembered of the last block, if the table has no say in it."""
        self._table: list[Field] = []
        self._size = 0
        self._max_size = TABLE_BYTES
        self._steady: dict[bytes, Steady] = {}

    def decode(self, block: bytes) -> list[Field]:
        steady = self.steady = self._steady.get(block)
        if steady is not None and steady.size <= self._max_size:
            self.has_changed = True
            self.is_familiar = False
            self._table += steady.inserted
            self._size += steady.size
            if self._size > self._max_size:
                self._evict(self._max_size)
            return steady.fields
        self.steady = None
        self.has_changed = False
        self.is_familiar = True
        try:
            return self._decode(block)
        except IndexError:
            raise ProtocolError("HPACK block cut short or index beyond the table", Reason.COMPRESSION) from None

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        inserted: list[Field] = []
        is_steady = True
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
                    is_steady = False
                    fields.append(table[61 - index])
                else:
                    fields.append(_static[index] if index else _no_field())
                continue
            if first & 0xE0 == 0x20:
                position, is_steady = self._resize(block, position, first & 31, bool(fields)), False
                continue
            top = 63 if first & 64 else 15
            index = first & top
            if index == top:
                index, position = _read_integer(block, position, top)
            if index:
                name = _static[index].name if index < 62 else table[61 - index].name
                is_steady = is_steady and index < 62
            else:
                start = position
                position = self._literal_end(block, position)
                name = _name_of(block[start:position])
            start = position
            position = self._literal_end(block, position)
            if first & 0xF0 == 0x10:
                is_steady = False
                fields.append(judge_literal(name, block[start:position], True))
                continue
            found = known_literal((name, block[start:position]))
            if found is None:
                found = field_of_literal(name, block[start:position])
                self.is_familiar = is_steady = False
            fields.append(found)
            if first & 64:
                self._insert(found)
                inserted.append(found)
        if inserted and is_steady:
            self._remember(block, fields, inserted)
        return fields

    def _remember(self, block: bytes, fields: list[Field], inserted: list[Field]) -> None:
        if len(self._steady) >= limits.CACHED_BLOCKS:
            self._steady.clear()
        self._steady[block] = self.steady = Steady(fields, inserted)

    def _literal_end(self, block: bytes, position: int) -> int:
        length = block[position] & 127
        position += 1
        if length == 127:
            length, position = _read_integer(block, position, 127)
        position += length
        if position > len(block):
            raise ProtocolError("HPACK literal cut short", Reason.COMPRESSION)
        return position

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


class Encoder:
    __slots__ = (
        "_blocks", "_octets", "_positions", "_size", "_max_size", "_seen", "_announcement", "_list_bytes", "_refused",
    )  # fmt: skip

    def __init__(self) -> None:
        self._blocks: dict[tuple[Field, ...], bytes] = {}
        """Whole blocks of indexed fields; valid until the next insertion. Identity makes the key cheap."""
        self._octets: dict[Field, bytes] = {}
        """What to send for a field that is in a table; valid until the next insertion."""
        self._positions: dict[tuple[bytes, bytes], int] = {}
        """Where in order of insertion a (name, value) stands in the dynamic table."""
        self._size = 0
        self._max_size = TABLE_BYTES
        self._seen: dict[Field, None] = {}
        self._announcement = b""
        """Table size updates, for the front of the next block."""
        self._list_bytes = 0
        """The peer's SETTINGS_MAX_HEADER_LIST_SIZE, or 0."""
        self._refused = 0

    def encode(self, fields: tuple[Field, ...]) -> bytes:
        """A header block; ProtocolError with OVER_LIMIT, and nothing changed, if the peer does not take such a list."""
        block = self._blocks.get(fields)
        return block if block is not None else self._encode(fields)

    def _encode(self, fields: tuple[Field, ...]) -> bytes:
        if self._list_bytes and sum([one.size for one in fields]) > self._list_bytes:
            raise ProtocolError("header list over the peer's limit", Reason.OVER_LIMIT, 431)
        octets = self._octets
        parts: list[bytes] = []
        is_indexed = True
        for one in fields:
            known = octets.get(one)
            if known is None:
                known = self._introduce(one)
                is_indexed = False
            parts.append(known)
        block = b"".join(parts)
        if self._announcement:
            block = self._announcement + block
            self._announcement = b""
        elif is_indexed:
            if len(self._blocks) >= limits.CACHED_BLOCKS:
                self._blocks.clear()
            self._blocks[fields] = block
        if self._refused > _REFUSED_FIELDS:
            self._start_over(self._max_size)
        return block

    def limit_table(self, size: int) -> None:
        """The peer's SETTINGS_HEADER_TABLE_SIZE: start over with an empty table no larger than that."""
        size = min(size, TABLE_BYTES)
        if size != self._max_size:
            self._start_over(size)

    def limit_list(self, size: int) -> None:
        """The peer's SETTINGS_MAX_HEADER_LIST_SIZE; 0 is none. What was remembered may be too long now.

        It is advisory (RFC 9113 section 6.5.2): one that no answer at all would fit in is not taken at its word.
        """
        self._list_bytes = max(size, _LEAST_LIST_BYTES) if size else 0
        self._blocks.clear()

    def _start_over(self, size: int) -> None:
        self._max_size = size
        self._size = 0
        self._refused = 0
        self._octets.clear()
        self._blocks.clear()
        self._positions.clear()
        # The smallest size in between must be said too (RFC 7541 section 4.2); 0 is never larger.
        self._announcement = integer(0, 5, 32) + integer(size, 5, 32)

    def _introduce(self, new: Field) -> bytes:
        """The octets of a field that is in no table, or whose place there is not remembered."""
        name = new.name
        literal = new.literal or new.make_literal()
        if new.is_sensitive:
            return _name_prefix(name, 4, 16) + literal
        key = (name, new.value)
        index = _static_index.get(key)
        if index is None:
            position = self._positions.get(key)
            if position is not None:
                index = 61 + len(self._positions) - position
            elif new not in self._seen:
                if len(self._seen) >= _SEEN_FIELDS:
                    self._seen.clear()
                self._seen[new] = None
                return (_new_names.get(name) or _unindexed_prefix(name)) + literal
            elif self._size + new.size <= self._max_size and new.kind != DATE:
                return self._insert(new, key, literal)
        if len(self._octets) >= _SEEN_FIELDS:
            self._octets.clear()
        if index is None:
            # Met again, but not for the table: it is full, or the field lives for a second.
            if new.kind != DATE and new.size <= self._max_size:
                self._refused += 1
            octets = _unindexed_prefix(name) + literal
        else:
            octets = integer(index, 7, 128)
        self._octets[new] = octets
        return octets

    def _insert(self, new: Field, key: tuple[bytes, bytes], literal: bytes) -> bytes:
        self._size += new.size
        self._positions[key] = len(self._positions)
        self._octets.clear()
        self._blocks.clear()
        del self._seen[new]
        return _name_prefix(key[0], 6, 64) + literal
