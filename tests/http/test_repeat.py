"""Whether a request is sent again: that depends on how far it can have got, what it is, and how often it was tried."""

from __future__ import annotations

import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.http.attempt import Attempt
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.repeat.repeat import BEGUN, NOT_BEGUN, RACED, is_idempotent, may_repeat
from tests.kit.streams import FakeClient, FakeServer, response_head


def asked(method: bytes = b"GET", ends: bool = True) -> Exchange:
    exchange = Exchange(FakeServer(), RequestHead(method, b"http", b"svc", b"/", [], 0 if ends else -1), 0.0)
    exchange.request_ended = ends
    return exchange


@pytest.mark.parametrize(
    ("method", "ends", "progress", "goes"),
    [
        (b"GET", True, BEGUN, False),
        (b"GET", True, RACED, True),
        (b"GET", True, NOT_BEGUN, True),
        (b"POST", True, RACED, False),
        (b"POST", True, NOT_BEGUN, True),
        (b"PUT", False, RACED, False),
        (b"PUT", False, NOT_BEGUN, True),
    ],
)
def test_progress_and_method(method: bytes, ends: bool, progress: int, goes: bool) -> None:
    assert may_repeat(asked(method, ends), progress) is goes


def test_a_tunnel_is_not_asked_for_twice() -> None:
    exchange = asked()
    exchange.request.wants_tunnel = True
    assert not is_idempotent(exchange) and may_repeat(exchange, NOT_BEGUN)


def test_nothing_goes_again_that_has_an_answer_an_end_or_lost_some_of_its_body() -> None:
    answered, ended, sent = asked(), asked(), asked(b"POST", False)
    answered.response_head(response_head(), False)
    ended.cancel(Reason.CANCELLED)
    sent.attach(FakeClient())
    assert may_repeat(sent, NOT_BEGUN), "nothing but its head is gone"
    sent.request_data(b"x", False)
    assert not any(may_repeat(one, NOT_BEGUN) for one in (answered, ended, sent))


def test_the_number_of_attempts_is_bounded() -> None:
    exchange = asked()
    for _ in range(limits.ATTEMPTS):
        assert may_repeat(exchange, NOT_BEGUN)
        Attempt(exchange, exchange.request)
    assert not may_repeat(exchange, NOT_BEGUN)
