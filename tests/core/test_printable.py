"""Text from a peer cannot end a line, move a cursor or change the reading direction (row B29)."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("GET /a b", "GET /a b"),
        ("a\nb\r\nc\td", "a\\nb\\r\\nc\\td"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\0\x7f\x9b31m", "\\x00\\x7f\\x9b31m"),
        ("a\u2028b", "a\\u2028b"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\udcff", "\\udcff"),
        ("grüße 漢字 🎉", "grüße 漢字 🎉"),
    ],
)
def test_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(), max_size=50))
def test_any_text_is_one_line_that_can_be_written(text: str) -> None:
    shown = printable(text)
    assert len((shown + ".").splitlines()) == 1
    assert not [one for one in shown if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp")]
    assert not [
        one
        for one in shown
        if unicodedata.bidirectional(one) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    ]
    shown.encode()
