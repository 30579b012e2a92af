"""Faults are counted: what a codec refuses, and why a connection ended."""

from __future__ import annotations

import pytest

from proxy.core.failure.reason import Reason
from proxy.http.exchange import Exchange
from proxy.http.h1.server import H1Server
from proxy.metrics import Registry
from tests.kit import Clock, ListWire


class Silent:
    """A stage that never answers."""

    def dispatch(self, exchange: Exchange) -> None:
        pass


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
        b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
    ],
    ids=["bytes", "two-hosts", "cl-and-te", "long-target", "bad-chunk"],
)
def test_a_refused_request_is_counted_with_its_reason(hostile: bytes) -> None:
    registry = Registry(Clock())
    wire = ListWire()
    H1Server(wire, Silent(), Clock(), None, registry.faults("inbound")).feed(hostile)
    assert wire.take().startswith(b"HTTP/1.1 4")
    counts = registry.faults("inbound").counts
    assert sum(counts.values()) == 1 and set(counts) <= {"bad_request", "protocol_error", "over_limit"}


def test_every_reason_has_a_name_that_a_label_can_be() -> None:
    faults = Registry(Clock()).faults("outbound")
    for reason in Reason:
        faults.count(reason)
    assert "complete" not in faults.counts and "connection_reset" in faults.counts
    assert all(name.replace("_", "").isalnum() for name in faults.counts)
