"""What the body of an answer by the proxy explains, and Troubles, which remembers the errors behind it."""

from __future__ import annotations

import pytest

from proxy.balance.endpoints import ABSENT, KNOWN, PENDING, Resolution
from proxy.core.address.addr import Addr
from proxy.core.failure.reason import Reason
from proxy.core.failure.troubles import Troubles, lasting
from proxy.http.ending import replies
from proxy.http.ending.explanation import Explanation, explain
from proxy.http.head import HTTP_2, RequestHead
from proxy.http.headers import field
from proxy.outbound.http.advice import advice_for
from proxy.outbound.http.concrete import why_none_ready
from proxy.policy.endpoint import EndpointMeta
from tests.kit import Clock

GIVEN = Explanation("client's", "endpoint 10.0.0.1:80: client error (Connect)", "Connection refused, for 3s", "the log")


def request(method: bytes = b"GET", *fields: tuple[bytes, bytes], version: int = HTTP_2) -> RequestHead:
    head = RequestHead(method, b"http", b"web\x1b[2J", b"/secret", [field(*one) for one in fields], 0)
    head.version = version
    return head


def test_an_explanation_is_a_few_lines_of_plain_text() -> None:
    asked = request()
    head = replies.answer(asked, 502, 14, GIVEN.what, True, False)
    body = explain(head, asked, GIVEN)
    assert body.decode().splitlines() == [
        "502, answered by the client's sidecar (Sponson), not by the application.",
        "request: GET to web\\x1b[2J",
        "failed: endpoint 10.0.0.1:80: client error (Connect)",
        "because: Connection refused, for 3s",
        "look at: the log",
    ]
    fields = {one.name: one.value for one in head.fields}
    assert fields[b"content-type"] == b"text/plain" and int(fields[b"content-length"]) == len(body) == head.body_size
    assert fields[b"l5d-proxy-error"] == GIVEN.what.encode(), "as Linkerd sets it"
    assert b"/secret" not in body


@pytest.mark.parametrize("given", [GIVEN._replace(why=""), GIVEN._replace(advice="")])
def test_what_is_not_known_is_not_said(given: Explanation) -> None:
    asked = request()
    body = explain(replies.answer(asked, 502, 14, given.what, True, False), asked, given).decode()
    assert ("because:" in body) is bool(given.why) and ("look at:" in body) is bool(given.advice)


def test_grpc_gets_it_in_its_message_and_head_gets_no_body() -> None:
    asked = request(b"POST", (b"content-type", b"application/grpc"))
    head = replies.answer(asked, 502, 14, GIVEN.what, True, False)
    assert explain(head, asked, GIVEN._replace(advice="100% sure")) == b"" and head.body_size == 0
    fields = {one.name: one.value for one in head.fields}
    assert fields[b"grpc-message"] == GIVEN.what.encode() + b"; Connection refused, for 3s; 100%25 sure"
    assert fields[b"l5d-proxy-error"] == GIVEN.what.encode()
    asked = request(b"HEAD")
    head = replies.answer(asked, 502, 14, GIVEN.what, True, False)
    assert explain(head, asked, GIVEN) == b"" and head.body_size == 0


def test_troubles_begin_once_end_with_a_connection_and_are_bounded() -> None:
    clock = Clock()
    troubles = Troubles(clock)
    troubles.failed("a", "refused")
    clock.now += 5
    troubles.failed("a", "timed out")
    clock.now += 3
    assert troubles.of("a") == "timed out, for 8s" and troubles.of("b") == ""
    troubles.succeeded("a")
    assert troubles.of("a") == ""
    for number in range(1000):
        troubles.failed(str(number), "refused")
    assert len(troubles._known) <= 256 and troubles.of("999")
    assert [lasting(seconds) for seconds in (0.4, 119, 125, 7199, 7300)] == ["0s", "119s", "2m", "120m", "2h"]


def test_fail_fast_says_why() -> None:
    troubles = Troubles(Clock())
    addrs = [Addr("10.0.0.1", port) for port in range(80, 85)]
    known = Resolution(KNOWN, dict.fromkeys(addrs, EndpointMeta()))
    assert (
        why_none_ready(Resolution(PENDING), troubles, 3.0)
        == "0 endpoints: the control plane has not named any yet, for 3s"
    )
    assert (
        why_none_ready(Resolution(ABSENT), troubles, 0.0)
        == "0 endpoints: the control plane knows no such service, for 0s"
    )
    assert why_none_ready(Resolution(KNOWN), troubles, 200.0) == "0 endpoints, for 3m"
    assert why_none_ready(known, troubles, 0.0) == "none of 5 endpoints is ready"
    for addr in addrs:
        troubles.failed(str(addr), "refused")
    said = why_none_ready(known, troubles, 0.0)
    assert (
        said.startswith("none of 5 endpoints is ready; 10.0.0.1:80: refused, for 0s; ") and said.count("refused") == 3
    )


def test_where_nothing_is_known_no_advice_is_given() -> None:
    assert advice_for("", Reason.COMPLETE, "") == ""
    assert advice_for("loop", Reason.COMPLETE, "").startswith("the target, or the endpoints")
