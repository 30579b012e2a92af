"""HPACK's encoder (RFC 7541) on interned fields: fields in, octets out.

It indexes a field the second time it meets it and never evicts, so that a
header that varies per request does not displace those that repeat, and the
peer's caches keep hitting; a `date` is never indexed, and a table that no
longer fits the traffic is emptied whole.
"""

from __future__ import annotations

from typing import Final

from proxy.core import limits
from proxy.core.budget import REMEMBERED, Share, Table
from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.h2.hpack.decoder import TABLE_BYTES
from proxy.http.h2.hpack.static_table import STATIC_TABLE
from proxy.http.headers import DATE, Field, integer, string_literal

_LONGEST_FIELD: Final = limits.REMEMBERED_TEXT_BYTES + 32
"""A field's size counts 32 beside its text. What is longer is not interned, and so is never met twice."""
_ENTRY_BYTES: Final = 200
_FIELD_COPIES: Final = 4
"""What a remembered field costs beside its text, and how many times its text: it keeps the Field alive."""
_LEAST_LIST_BYTES: Final = 256
"""A status, a length and a date, and room for a little."""
_REFUSED_FIELDS: Final = 128
"""How many fields that were met twice may find the table full, about twice what it holds, before it is emptied and filled anew."""

_static_index: Final[dict[tuple[bytes, bytes], int]] = {
    entry: index for index, entry in reversed(list(enumerate(STATIC_TABLE, 1)))
}
_static_name_index: Final[dict[bytes, int]] = {
    name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE, 1)))
}

_new_names: Final[Table[bytes, bytes]] = Table("hpack_prefixes", limits.NAMES_BYTES, 200, 2)
_known_prefix: Final = _new_names.recent.get


def _name_prefix(name: bytes, bits: int, pattern: int) -> bytes:
    index = _static_name_index.get(name)
    return bytes((pattern,)) + string_literal(name) if index is None else integer(index, bits, pattern)


def _unindexed_prefix(name: bytes) -> bytes:
    """The start of a literal without indexing, kept because a varying header needs it every time."""
    prefix = _known_prefix(name)
    if prefix is None:
        prefix = _new_names.find(name, len(name))
        if prefix is None:
            prefix = _name_prefix(name, 4, 0)
            _new_names.keep(name, prefix, len(name))
    return prefix


class Encoder:
    __slots__ = (
        "blocks", "_octets", "_positions", "_size", "_max_size", "_seen", "_announcement", "_list_bytes", "_refused",
        "_share",
    )  # fmt: skip

    def __init__(self) -> None:
        self.blocks: dict[tuple[Field, ...], bytes] = {}
        """Whole blocks of indexed fields; valid until the next insertion. Identity makes the key cheap. Whoever sends the
        head of a message looks here first, and calls `encode` for what is not here."""
        self._octets: dict[Field, bytes] = {}
        """What to send for a field that is in a table; valid until the next insertion."""
        self._positions: dict[tuple[bytes, bytes], int] = {}
        """The position of each (name, value) in the dynamic table, by order of insertion."""
        self._size = 0
        self._max_size = TABLE_BYTES
        self._seen: dict[Field, None] = {}
        self._announcement = b""
        """Table size updates, for the front of the next block."""
        self._list_bytes = 0
        """The peer's SETTINGS_MAX_HEADER_LIST_SIZE, or 0."""
        self._refused = 0
        self._share: Share | None = None
        """Made when something is remembered first."""

    def encode(self, fields: tuple[Field, ...]) -> bytes:
        """A header block; ProtocolError with OVER_LIMIT, and nothing changed, if the peer does not take such a list."""
        block = self.blocks.get(fields)
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
        elif is_indexed and len(block) <= limits.REMEMBERED_TEXT_BYTES:
            if len(self.blocks) >= limits.CACHED_BLOCKS:
                self.blocks.clear()
            self.blocks[fields] = block
            self._hold(_ENTRY_BYTES + 8 * len(fields) + len(block))
        if self._refused > _REFUSED_FIELDS:
            self._start_over(self._max_size)
        return block

    def limit_table(self, size: int) -> None:
        """The peer's SETTINGS_HEADER_TABLE_SIZE: start over with an empty table no larger than that."""
        size = min(size, TABLE_BYTES)
        if size != self._max_size:
            self._start_over(size)

    def limit_list(self, size: int) -> None:
        """The peer's SETTINGS_MAX_HEADER_LIST_SIZE; 0 stands for no limit. Blocks that were remembered may be too long
        now.

        The limit is advisory (RFC 9113 section 6.5.2), so one that even the shortest answer would exceed is raised.
        """
        self._list_bytes = max(size, _LEAST_LIST_BYTES) if size else 0
        self.blocks.clear()

    def _start_over(self, size: int) -> None:
        self._max_size = size
        self._size = 0
        self._refused = 0
        self._octets.clear()
        self.blocks.clear()
        self._positions.clear()
        # The smallest size in between must be said too (RFC 7541 section 4.2); 0 is never larger.
        self._announcement = integer(0, 5, 32) + integer(size, 5, 32)

    def _introduce(self, new: Field) -> bytes:
        """The octets of a field that is in no table, or whose position is not remembered."""
        name = new.name
        literal = new.literal or new.make_literal()
        if new.is_sensitive:
            return _name_prefix(name, 4, 16) + literal
        if new.size > _LONGEST_FIELD:
            return (_known_prefix(name) or _unindexed_prefix(name)) + literal
        key = (name, new.value)
        index = _static_index.get(key)
        if index is None:
            position = self._positions.get(key)
            if position is not None:
                index = 61 + len(self._positions) - position
            elif new not in self._seen:
                if len(self._seen) >= limits.SEEN_FIELDS:
                    self._seen.clear()
                self._seen[new] = None
                self._hold(_ENTRY_BYTES + _FIELD_COPIES * new.size)
                return (_known_prefix(name) or _unindexed_prefix(name)) + literal
            elif self._size + new.size <= self._max_size and new.kind != DATE:
                return self._insert(new, key, literal)
        if len(self._octets) >= limits.SEEN_FIELDS:
            self._octets.clear()
        if index is None:
            # Met again, but not for the table: it is full, or the field lives for a second.
            if new.kind != DATE and new.size <= self._max_size:
                self._refused += 1
            octets = _unindexed_prefix(name) + literal
        else:
            octets = integer(index, 7, 128)
        self._octets[new] = octets
        self._hold(_ENTRY_BYTES + _FIELD_COPIES * new.size)
        return octets

    def _hold(self, cost: int) -> None:
        """Called after something was remembered, because there may be too much then, in this connection or in all."""
        share = self._share
        if share is None:
            share = self._share = Share(REMEMBERED, "http2_encoded", self)
        if share.held_bytes + cost > limits.CONNECTION_REMEMBERS_BYTES:
            self.forget()
        else:
            share.add(cost)

    def forget(self) -> None:
        """Forget what is remembered beside the table, which the peer relies on."""
        self.blocks.clear()
        self._octets.clear()
        self._seen.clear()
        if self._share is not None:
            self._share.give_back(self._share.held_bytes)

    def close(self) -> None:
        """The connection is over."""
        self.forget()
        if self._share is not None:
            self._share.close()
            self._share = None

    def _insert(self, new: Field, key: tuple[bytes, bytes], literal: bytes) -> bytes:
        self._size += new.size
        self._positions[key] = len(self._positions)
        self._octets.clear()
        self.blocks.clear()
        self._seen.pop(new, None)
        return _name_prefix(key[0], 6, 64) + literal
