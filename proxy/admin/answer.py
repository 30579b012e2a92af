"""Answers of the admin server: status, type, body, as heads that the codecs write.

A plain answer has no content-type; a 204 has no length; HEAD gets the head of what GET would get.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import ResponseHead
from proxy.http.headers import Field, field

TEXT: Final = b"text/plain"
JSON: Final = b"application/json"


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    content_type: bytes = b""
    fields: tuple[Field, ...] = ()
    closes: bool = False

    def send(self, exchange: Exchange) -> None:
        fields = [field(b"content-type", self.content_type)] if self.content_type else []
        fields += self.fields
        if self.status != 204:
            fields.append(field(b"content-length", b"%d" % len(self.body)))
        body = b"" if exchange.request.method == b"HEAD" else self.body
        reason = Reason.OVER_LIMIT if self.status == 413 else Reason.COMPLETE
        exchange.reply(ResponseHead(self.status, fields, len(self.body)), reason, self.closes, body)


def text(status: int, body: str) -> Answer:
    return Answer(status, body.encode(), TEXT)


def as_json(value: object) -> Answer:
    return Answer(200, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode(), JSON)


def json_error(status: int, error: str) -> Answer:
    return as_json({"error": error, "status": status})._replace(status=status)


NOT_FOUND: Final = Answer(404)
ONLY_POST: Final = Answer(405, fields=(field(b"allow", b"POST"),))
ONLY_GET: Final = Answer(405, fields=(field(b"allow", b"GET"),))
ONLY_READ: Final = Answer(405, fields=(field(b"allow", b"GET, HEAD"),))
FOREIGN_PAGE: Final = text(
    403, "Requests from web pages are not permitted: Host must be an address or localhost, Origin absent or the same.\n"
)
ONLY_LOCALHOST: Final = text(403, "Requests are only permitted from localhost.")
