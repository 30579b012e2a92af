"""Huffman decoding of HPACK strings (RFC 7541 appendix B).

An octet costs one list lookup. Every entry holds the text that the octet
completes and the row to go on with, so that the loop tests nothing. A row is
filled on first use: all of them together take a quarter of a second, and a
process that starts needs none.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core.failure.errors import ProtocolError
from proxy.core.failure.reason import Reason
from proxy.http.h2.hpack.huffman_table import CODE_LENGTHS, CODES

_EOS: Final = 256
_DEAD: Final = -1

# A row is a list of 256 (completed octets, next row); typed Any because it is recursive. Empty: not met yet.
Row = list[Any]  # see above


def _tree() -> list[list[int]]:
    """The code as a binary tree: >= 0 is a node, < 0 is the symbol -(n + 1)."""
    nodes: list[list[int]] = [[0, 0]]
    for symbol in range(257):
        node = 0
        length = CODE_LENGTHS[symbol]
        for shift in range(length - 1, -1, -1):
            bit = (CODES[symbol] >> shift) & 1
            if shift == 0:
                nodes[node][bit] = -(symbol + 1)
            else:
                if not nodes[node][bit]:
                    nodes.append([0, 0])
                    nodes[node][bit] = len(nodes) - 1
                node = nodes[node][bit]
    return nodes


_NODES: Final = _tree()
_ROWS: Final[list[Row]] = [[] for _ in _NODES]
"""By node of the tree."""
_node_of: Final[dict[int, int]] = {id(row): node for node, row in enumerate(_ROWS)}
_dead: Final[Row] = []
_dead.extend([(b"", _dead)] * 256)
_halves: Final[dict[int, list[tuple[bytes, int]]]] = {}
_pieces: Final[dict[bytes, bytes]] = {}


def _half(node: int) -> list[tuple[bytes, int]]:
    """What each four bits complete from this node on, and where they lead."""
    found = _halves.get(node)
    if found is None:
        found = _halves[node] = [_walk(node, bits) for bits in range(16)]
    return found


def _walk(node: int, bits: int) -> tuple[bytes, int]:
    done = b""
    for shift in (3, 2, 1, 0):
        node = _NODES[node][(bits >> shift) & 1]
        if node == -(_EOS + 1):
            return done, _DEAD
        if node < 0:
            done += bytes((-node - 1,))
            node = 0
    return done, node


def _fill(row: Row) -> None:
    """The 256 entries of a row that was never met."""
    for first, middle in _half(_node_of[id(row)]):
        if middle == _DEAD:
            row += [(first, _dead)] * 16
            continue
        for second, end in _half(middle):
            piece = first + second
            row.append((_pieces.setdefault(piece, piece), _dead if end == _DEAD else _ROWS[end]))


def _ends() -> list[Row]:
    """The rows where a string may end: after at most seven ones of padding."""
    ends = [_ROWS[0]]
    node = 0
    for _ in range(7):
        node = _NODES[node][1]
        ends.append(_ROWS[node])
    return ends


_ROOT: Final = _ROWS[0]
_ENDS: Final = _ends()


def decode(octets: bytes) -> bytes:
    """ProtocolError if it ends within a symbol, in too much padding, or names end-of-string."""
    row = _ROOT
    pieces: list[bytes] = []
    append = pieces.append
    for octet in octets:
        try:
            piece, row = row[octet]
        except IndexError:
            _fill(row)
            piece, row = row[octet]
        append(piece)
    for end in _ENDS:
        if row is end:
            return b"".join(pieces)
    raise ProtocolError("bad Huffman string", Reason.COMPRESSION)


def literal_value(literal: bytes) -> bytes:
    """The text of one complete string literal: length prefix, then octets."""
    first = literal[0]
    start = 1
    if first & 127 == 127:
        while literal[start] & 128:
            start += 1
        start += 1
    return decode(literal[start:]) if first & 128 else literal[start:]
