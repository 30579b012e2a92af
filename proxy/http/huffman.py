"""Huffman decoding of HPACK strings (RFC 7541 appendix B).

Law: an octet costs one list lookup. Every entry holds what the octet
completes and the row to go on with, so that the loop tests nothing.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.core.errors import ProtocolError
from proxy.core.reason import Reason
from proxy.http.huffman_table import CODE_LENGTHS, CODES

_EOS: Final = 256

# A row is a list of 256 (completed octets, next row); typed Any because it is recursive.
Row = list[Any]


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


def _rows() -> tuple[Row, list[Row]]:
    """The root row, and the rows where a string may end: after at most seven ones of padding."""
    nodes = _tree()
    rows: list[Row] = [[] for _ in nodes]
    dead: Row = []
    dead.extend([(b"", dead)] * 256)
    pieces: dict[bytes, bytes] = {}
    for state, row in enumerate(rows):
        for octet in range(256):
            node = state
            done = bytearray()
            for shift in range(7, -1, -1):
                node = nodes[node][(octet >> shift) & 1]
                if node < 0:
                    if node == -(_EOS + 1):
                        break
                    done.append(-node - 1)
                    node = 0
            piece = bytes(done)
            row.append((pieces.setdefault(piece, piece), dead if node < 0 else rows[node]))
    ends = [rows[0]]
    node = 0
    for _ in range(7):
        node = nodes[node][1]
        ends.append(rows[node])
    return rows[0], ends


_ROOT, _ENDS = _rows()


def decode(octets: bytes) -> bytes:
    row = _ROOT
    pieces: list[bytes] = []
    append = pieces.append
    for octet in octets:
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
