"""Every difference that a request or a response may show between a direct run and one through two proxies, with its
reason.

A difference is a rule that computes the mesh's view from the direct one; whatever the rules do not produce is a
fault. Rules work on parsed messages: names, values, order and bodies as they were on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tests.differential.cases import STATUSES, Case, Fields
from tests.kit.frames import Stream
from tests.kit.http1 import Message

_HOPS = (b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade")
_NOT_BEHIND_A_BODY = (
    b"host",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    b"authorization",
    b"set-cookie",
    b"trailer",
)
PHRASES = {b"599": b"", b"102": b"Processing", b"103": b"Early Hints"} | {
    one[:3]: one[4:] for one in STATUSES if one not in (b"200 Fine", b"299 Odd", b"599 ", b"599")
}
PHRASES[b"299"] = b""
CLIENT_ID = b"web.ns.serviceaccount.identity.linkerd.cluster.local"


class Rule(NamedTuple):
    name: str
    reason: str
    apply: Callable[[Case, Message], Message]


def _lowered(case: Case, message: Message) -> Message:
    def lower(fields: Fields) -> Fields:
        return [(name.lower(), value) for name, value in fields]

    return message._replace(fields=lower(message.fields), trailers=lower(message.trailers))


def _without_hops(case: Case, message: Message) -> Message:
    options = [one.strip().lower() for value in message.all(b"connection") for one in value.split(b",")]
    return message._replace(fields=[one for one in message.fields if one[0] not in _HOPS and one[0] not in options])


def _trailers_announced(case: Case, message: Message) -> Message:
    if b"trailers" not in [one.strip() for name, value in case.fields if name == b"TE" for one in value.split(b",")]:
        return message
    return message._replace(fields=[*message.fields, (b"te", b"trailers"), (b"connection", b"te")])


def _client_named(case: Case, message: Message) -> Message:
    return message._replace(fields=[*message.fields, (b"l5d-client-id", CLIENT_ID)])


def _trailers_cleaned(case: Case, message: Message) -> Message:
    return message._replace(trailers=[one for one in message.trailers if one[0] not in _NOT_BEHIND_A_BODY])


def _dated(case: Case, message: Message) -> Message:
    if message.status < 200 or message.all(b"date"):
        return message
    return message._replace(fields=[*message.fields, (b"date", b"DATE")])


def _usual_phrase(case: Case, message: Message) -> Message:
    status = message.start.split(b" ")[1]
    return message._replace(start=b"HTTP/1.1 %b %b" % (status, PHRASES[status]))


def _client_version(case: Case, message: Message) -> Message:
    if case.version == b"1.0" or (case.answer_version == b"1.0" and message.status >= 200):
        return message._replace(start=message.start.replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    return message


def _close_delimited(case: Case, message: Message) -> Message:
    if message.framing == "close" and case.version == b"1.1" and case.answer_version == b"1.1":
        return message._replace(framing="chunked")
    return message


def _says_close(case: Case, message: Message) -> Message:
    asked = any(name == b"Connection" and value == b"close" for name, value in case.fields)
    if asked and message.status >= 200 and case.version == b"1.1" and message.framing != "close":
        return message._replace(fields=[*message.fields, (b"connection", b"close")])
    return message


REQUESTS = [
    Rule(
        "names",
        "HTTP/2 between proxies has names in lower case (RFC 9113 section 8.2.1); order and duplicates stay",
        _lowered,
    ),
    Rule(
        "hop-by-hop",
        "fields of one hop stay there (RFC 9110 section 7.6.1); chunks are cut anew (RFC 9112 section 7.1)",
        _without_hops,
    ),
    Rule("te", "`te: trailers` is kept, as ours (docs/compatibility.md)", _trailers_announced),
    Rule("client", "the app learns who asked: `l5d-client-id` (tests/data/http1-pair.json)", _client_named),
    Rule("trailers", "what frames, routes or describes is no trailer (RFC 9110 section 6.5.1)", _trailers_cleaned),
]
RESPONSES = [
    Rule("names", "as of requests", _lowered),
    Rule("hop-by-hop", "as of requests", _without_hops),
    Rule("trailers", "as of requests", _trailers_cleaned),
    Rule("date", "a response without one gets one (RFC 9110 section 6.6.1)", _dated),
    Rule("phrase", "HTTP/2 has no reason phrase (RFC 9113 section 8.3.1)", _usual_phrase),
    Rule(
        "version",
        "HTTP/1.0 on either end makes the answer HTTP/1.0 (recorded of the real proxy)",
        _client_version,
    ),
    Rule(
        "close-delimited",
        "to an HTTP/1.1 client a body without length is chunked (RFC 9112 section 6.3)",
        _close_delimited,
    ),
    Rule("close", "a client that says close hears close (RFC 9112 section 9.6)", _says_close),
]


def _client_named_2(case: Case, stream: Stream) -> Stream:
    return replace(stream, heads=[[*stream.head, (b"l5d-client-id", CLIENT_ID)]])


def _dated_2(case: Case, stream: Stream) -> Stream:
    if stream.get(b"date") is not None:
        return stream
    return replace(stream, heads=[*stream.heads[:-1], [*stream.head, (b"date", b"DATE")]])


def _trailers_cleaned_2(case: Case, stream: Stream) -> Stream:
    return replace(stream, trailers=[one for one in stream.trailers if one[0] not in _NOT_BEHIND_A_BODY])


class Rule2(NamedTuple):
    name: str
    reason: str
    apply: Callable[[Case, Stream], Stream]


REQUESTS_2 = [
    Rule2("client", "as of HTTP/1", _client_named_2),
    Rule2("trailers", "as of HTTP/1", _trailers_cleaned_2),
]
RESPONSES_2 = [
    Rule2("date", "as of HTTP/1", _dated_2),
    Rule2("trailers", "as of HTTP/1", _trailers_cleaned_2),
]


def expected_2(rules: list[Rule2], case: Case, stream: Stream) -> Stream:
    for rule in rules:
        stream = rule.apply(case, stream)
    return stream


def expected(rules: list[Rule], case: Case, message: Message) -> Message:
    for rule in rules:
        message = rule.apply(case, message)
    return message
