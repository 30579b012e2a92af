"""Which exchanges count as successes, with a route's own response classes and without any."""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import field
from proxy.metrics.scope import Ended
from proxy.policy.profiles.classify import ClassifyingRoute, classify
from proxy.policy.profiles.profile import ResponseClasses
from tests.kit.streams import FakeServer


def ended(
    status: int,
    content_type: bytes = b"",
    head_status: bytes = b"",
    trailer_status: bytes = b"",
    reason: Reason = Reason.COMPLETE,
) -> Exchange:
    fields = [field(b"content-type", content_type)] if content_type else []
    exchange = Exchange(FakeServer(), RequestHead(b"POST", b"http", b"a", b"/", fields, 0), 0.0)
    if status:
        given = [field(b"grpc-status", head_status)] if head_status else []
        exchange.response = ResponseHead(status, given, 0)
        exchange.response_ended = reason is Reason.COMPLETE
    if trailer_status:
        exchange.trailers = [field(b"grpc-status", trailer_status)]
    exchange.reason = reason
    exchange.is_broken = reason is not Reason.COMPLETE
    return exchange


@pytest.mark.acceptance("CLASS-01")
@pytest.mark.parametrize(("status", "is_success"), [(200, True), (400, True), (499, True), (500, False), (599, False)])
def test_http(status: int, is_success: bool) -> None:
    assert classify(ended(status)) == Ended(status, is_success, "", "")


def test_a_status_that_was_not_met_before_is_counted_too() -> None:
    for status in range(200, 600):
        for _ in range(2):
            assert classify(ended(status)) == Ended(status, status < 500, "", "")


GRPC = b"application/grpc"


@pytest.mark.acceptance("CLASS-02")
def test_grpc() -> None:
    assert classify(ended(200, GRPC, b"0")) == Ended(200, True, "0", "")
    assert classify(ended(200, GRPC, b"2")) == Ended(200, False, "2", "")
    assert classify(ended(200, GRPC, trailer_status=b"0")) == Ended(200, True, "0", "")
    assert classify(ended(200, GRPC, trailer_status=b"4")) == Ended(200, False, "4", "")
    assert classify(ended(200, GRPC)) == Ended(200, True, "2", "")


@pytest.mark.acceptance("CLASS-04")
def test_any_grpc_content_type() -> None:
    assert classify(ended(200, b"application/grpc+proto", trailer_status=b"0")) == Ended(200, True, "0", "")
    assert classify(ended(200, b"application/grpc+proto", trailer_status=b"4")) == Ended(200, False, "4", "")


@pytest.mark.parametrize("code", range(17))
def test_the_codes_that_speak_against_the_server(code: int) -> None:
    found = classify(ended(200, GRPC, trailer_status=b"%d" % code))
    assert found is not None and found.is_success is (code not in (2, 4, 7, 13, 14, 15))


def test_a_response_that_breaks_off_is_a_failure() -> None:
    exchange = ended(200, reason=Reason.PEER_RESET)
    exchange.reset_code = 8
    assert classify(exchange) == Ended(200, False, "", "h2(CANCEL)")
    assert classify(ended(200, reason=Reason.PROTOCOL_ERROR)) == Ended(200, False, "", "unclassified")


def test_a_response_whose_client_left_is_what_its_head_says() -> None:
    for status in (200, 500):
        exchange = ended(status, reason=Reason.CONNECTION_RESET)
        exchange.is_broken = False
        assert classify(exchange) == Ended(status, status < 500, "", "")


def test_a_route_s_classes_come_first_and_grpc_decides_what_they_leave_open() -> None:
    def of(status: int, head: bytes = b"", trailer: bytes = b"") -> Ended | None:
        exchange = ended(status, b"", head, trailer)
        exchange.route = ClassifyingRoute("", ResponseClasses(frozenset((533,)), frozenset((404, 500))), True)
        return classify(exchange)

    assert of(404) == Ended(404, False, "", "") and of(533) == Ended(533, True, "", "")
    assert of(500, b"0") == Ended(500, False, "", ""), "what a class names is not looked at further"
    assert of(503) == Ended(503, False, "", "") and of(200) == Ended(200, True, "", "")
    assert of(200, b"4") == of(200, trailer=b"4") == Ended(200, False, "4", "")
    assert of(503, trailer=b"5") == Ended(503, True, "5", "")
    assert of(200, b"x", b"y") == Ended(200, True, "", ""), "no numbers are no status"


def test_a_grpc_status_that_is_no_number_is_none() -> None:
    assert classify(ended(200, GRPC, b"x", b"14")) == Ended(200, False, "14", "")
    assert classify(ended(200, GRPC, trailer_status=b"-1")) == Ended(200, True, "2", "")


def test_without_a_response() -> None:
    assert classify(ended(0, reason=Reason.RESPONSE_TIMEOUT)) == Ended(0, False, "", "timeout")
    reset = ended(0, reason=Reason.PEER_REFUSED)
    reset.reset_code = 7
    assert classify(reset) == Ended(0, False, "", "h2(REFUSED_STREAM)")
    assert classify(ended(0, reason=Reason.CANCELLED)) is None, "its client gave up"
