"""The `date` of a response that has none (RFC 9110 section 6.6.1).

Made once a second and interned here; the caller's monotonic clock says when a
second has passed, the system's clock gives the date.
"""

from __future__ import annotations

import re
import time
from calendar import timegm
from datetime import UTC, datetime
from typing import Final

from proxy.http.head import ResponseHead
from proxy.http.headers import DATE, Field

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class _Cell:
    __slots__ = ("second", "field")

    def __init__(self) -> None:
        self.second = -1
        self.field = date_of(time.gmtime())


def date_of(moment: time.struct_time) -> Field:
    """An IMF-fixdate, which no locale may translate."""
    day, month = _DAYS[moment.tm_wday], _MONTHS[moment.tm_mon - 1]
    text = f"{day}, {moment.tm_mday:02} {month} {moment.tm_year} {moment.tm_hour:02}:{moment.tm_min:02}:{moment.tm_sec:02} GMT"
    return Field(b"date", text.encode("ascii"), DATE, False, b"", b"")


_cell: Final = _Cell()


def date_field(now: float) -> Field:
    """The field for this second; `now` is monotonic."""
    second = int(now)
    if second != _cell.second:
        _cell.second = second
        _cell.field = date_of(time.gmtime())
    return _cell.field


def needs_date(head: ResponseHead) -> bool:
    """Whether the response needs a date; informational responses do not."""
    if head.has_date or (head.status < 200 and head.status != 101):
        return False
    return all(one.kind != DATE for one in head.fields)


def date_line(head: ResponseHead, now: float) -> bytes:
    """The line of HTTP/1 that a response lacks; empty if it needs none."""
    return date_field(now).line if needs_date(head) else b""


_FIXED: Final = re.compile(rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (\d\d) ([A-Z][a-z]{2}) (\d{4}) (\d\d):(\d\d):(\d\d) GMT")
_RFC_850: Final = re.compile(rb"[A-Z][a-z]{5,8}, (\d\d)-([A-Z][a-z]{2})-(\d\d) (\d\d):(\d\d):(\d\d) GMT")
_ASCTIME: Final = re.compile(rb"[A-Z][a-z]{2} ([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\d{4})")


def seconds_until(value: bytes) -> float | None:
    """How long it is until this HTTP-date, in any of its three forms (RFC 9110 section 5.6.7), by the system's clock.
    0 if it is past, None if the value is not a date.
    """
    found = _FIXED.fullmatch(value) or _RFC_850.fullmatch(value)
    if found is not None:
        day, month, year, *clock = found.groups()
    else:
        found = _ASCTIME.fullmatch(value)
        if found is None:
            return None
        month, day, *clock, year = found.groups()
    name = month.decode("ascii")
    if name not in _MONTHS:
        return None
    number = int(year) if len(year) == 4 else int(year) + (2000 if int(year) < 70 else 1900)
    hour, minute, second = map(int, clock)
    try:
        then = datetime(number, _MONTHS.index(name) + 1, int(day), hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return max(then.timestamp() - timegm(time.gmtime()), 0.0)
