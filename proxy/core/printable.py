"""Makes text that a peer sent safe to put into a line: no character may end the line, move the cursor or change the reading direction.

Host names, paths, SNI and the status texts of controllers end up in log lines and on terminals. A newline in one of them would forge a line,
an escape would recolour or clear the screen of the person who reads it.
"""

from __future__ import annotations

import re
from typing import Final

_is_plain: Final = re.compile(r"[ -~]*").fullmatch

_TURNING: Final = (0x2028, 0x2029, 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
"""Line and paragraph separators, and what changes the direction of reading (Unicode, UAX #9)."""

_ESCAPES: Final[dict[int, str]] = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))},
    **{ord(one): text for one, text in (("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))},
    **{code: f"\\u{code:04x}" for code in (*_TURNING, *range(0xD800, 0xE000))},
}


def printable(text: str) -> str:
    """The text with control characters, turning characters and lone surrogates as escapes; other text is itself."""
    return text if _is_plain(text) is not None else text.translate(_ESCAPES)
