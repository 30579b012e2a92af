"""Long messages are decoded in shares, and come out as they would in one piece, in their order and before the end of their call."""

from __future__ import annotations

import gc
from collections.abc import Callable
from random import Random
from time import monotonic, thread_time
from types import SimpleNamespace

import pytest
from google.protobuf.message import DecodeError, Message

from proxy.api import destination_pb2, inbound_pb2, outbound_pb2
from proxy.control.rpc.decoding import Late, read_message
from proxy.core import limits
from proxy.core.loop.step_queue import StepQueue
from proxy.core.shares import at_once
from proxy.http import grpc
from proxy.http.grpc import Status
from tests.control.rpc.test_call import UPDATE, answers, ask
from tests.control.test_large_updates import update

LONG = 3 * limits.DECODED_BYTES


def labels(count: int) -> destination_pb2.Update:
    found = destination_pb2.Update()
    for number in range(count):
        found.add.metric_labels[f"{number:x}"] = ""
    return found


def profile() -> destination_pb2.DestinationProfile:
    """Long in every way: many routes, one of many conditions, one long text, and fields that nobody knows."""
    found = destination_pb2.DestinationProfile(fully_qualified_name="n" * LONG)
    found.routes.add().condition.path.regex = "/" + "a" * LONG
    condition = found.routes.add().condition
    for number in range(LONG // 8):
        getattr(condition.all.matches.add(), "not").path.regex = f"/{number}"
    for number in range(2000):
        found.routes.add().metrics_labels["route"] = str(number)
    found.routes.add(timeout={"seconds": 1})
    found.endpoint.addr.port = 80
    found.endpoint.metric_labels["long"] = "v" * LONG
    found.MergeFromString(b"\xa2\x3e\x83\x80\x03" + bytes(LONG + 3) + b"\xa1\x3e" + bytes(8) + b"\xa5\x3e" + bytes(4))
    return found


def policy() -> outbound_pb2.OutboundPolicy:
    found = outbound_pb2.OutboundPolicy()
    route = found.protocol.detect.http1.routes.add()
    for number in range(3000):
        rule = route.rules.add()
        rule.matches.add().path.prefix = f"/{number}"
        rule.backends.first_available.backends.add().backend.balancer.discovery.dst.path = f"web-{number}:80"
    return found


def server() -> inbound_pb2.Server:
    found = inbound_pb2.Server(server_ips=[{"ipv4": number} for number in range(5000)])
    for number in range(3000):
        found.authorizations.add().networks.add().net.ip.ipv4 = number
        found.authorizations[-1].labels["name"] = f"a-{number}"
    return found


MESSAGES: dict[str, Message] = {
    "endpoints": update(0, 1000), "labels of all": labels(5000), "a profile": profile(), "a policy": policy(), "a server": server(),
    "nothing": destination_pb2.Update(), "endpoints that are nothing": destination_pb2.Update(add={"addrs": [{}] * 20_000}),
}  # fmt: skip


@pytest.mark.parametrize("kind", MESSAGES)
def test_what_is_decoded_in_shares_is_what_is_decoded_in_one_piece(kind: str) -> None:
    message = MESSAGES[kind]
    data = message.SerializeToString()
    found = at_once(read_message(type(message), data))
    assert found == message
    assert len(list(read_message(type(message), data))) >= len(data) // (16 * limits.DECODED_BYTES)


def test_of_two_messages_in_one_field_the_parts_are_merged_and_of_two_kinds_the_last_counts() -> None:
    one, other = update(0, 400).SerializeToString(), update(400, 400).SerializeToString()
    short = UPDATE.SerializeToString()
    for data in (one + other, one + short, short + one, one + short + other):
        assert at_once(read_message(destination_pb2.Update, data)) == destination_pb2.Update.FromString(data)


def test_messages_deep_within_messages() -> None:
    inner = destination_pb2.RequestMatch()
    for number in range(LONG // 8):
        inner.any.matches.add().path.regex = f"/{number}"
    for _ in range(40):
        outer = destination_pb2.RequestMatch()
        getattr(outer, "not").CopyFrom(inner)
        inner = outer
    assert at_once(read_message(destination_pb2.RequestMatch, inner.SerializeToString())) == inner
    deep = b""
    for _ in range(15_000):
        size = LONG + len(deep)
        deep = b"\x1a" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + deep
    deep += bytes(LONG)
    with pytest.raises(DecodeError):
        at_once(read_message(destination_pb2.RequestMatch, deep))


def test_what_is_no_message_is_refused_as_in_one_piece() -> None:
    """Octets are changed, cut off and doubled: both ways give the same, or both refuse."""
    dice = Random(7)
    refused = 0
    for kind in ("endpoints", "a profile", "a server"):
        message = MESSAGES[kind]
        data = message.SerializeToString()
        for _ in range(60):
            place = dice.randrange(len(data))
            change = dice.choice([data[:place], data[:place] + bytes([dice.randrange(256)]) + data[place + 1 :]])
            try:
                expected = type(message).FromString(change)
            except DecodeError:
                refused += 1
                with pytest.raises(DecodeError):
                    at_once(read_message(type(message), change))
            else:
                assert at_once(read_message(type(message), change)) == expected
    assert 20 < refused < 170


def added(one: bytes) -> bytes:
    """An update of four mebibytes that adds these octets again and again."""
    within = one * ((limits.CONTROL_MESSAGE_BYTES - 8) // len(one))
    return b"\x0a" + encoded(len(within)) + within


def encoded(size: int) -> bytes:
    return bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])


LARGEST = {
    "labels of all": lambda: added(b"".join(b"\x12\x08\x0a\x06%06d" % number for number in range(400_000))),
    "endpoints that are nothing": lambda: added(b"\x0a\x00"),
    "endpoints": lambda: added(update(7, 1).SerializeToString()[2:]),
}


@pytest.mark.parametrize("kind", LARGEST)
def test_no_turn_is_long_whatever_a_message_of_four_mebibytes_consists_of(kind: str) -> None:
    """In one piece the first takes 750 ms, the second 150, the last, of 34,000 usual endpoints, 15. The longest turn measured:
    50 ms, in which the map grows, 8 and 1.
    """
    data = LARGEST[kind]()
    assert 3_900_000 < len(data) <= limits.CONTROL_MESSAGE_BYTES
    soon: list[Callable[[], None]] = []
    got: list[destination_pb2.Update] = []
    steps = StepQueue(SimpleNamespace(call_soon=soon.append), monotonic)
    late = Late(steps, destination_pb2.Update, got.append, lambda error: None, lambda: None)
    longest_s, turns = 0.0, 0
    gc.collect()
    gc.disable()  # a collection may fall into any turn, and has nothing to do with it
    try:
        began_s = thread_time()
        late.add(data)
        longest_s = thread_time() - began_s
        while soon:
            turn = soon.pop(0)
            began_s = thread_time()
            turn()
            longest_s = max(longest_s, thread_time() - began_s)
            turns += 1
    finally:
        gc.enable()
    assert len(got) == 1 and turns > 10
    assert longest_s < 0.1


# ---- calls

MANY = labels(5600)


def test_messages_keep_their_order_and_come_before_the_end() -> None:
    frames = b"".join(grpc.frame(one.SerializeToString()) for one in (UPDATE, MANY, UPDATE))
    assert 3 * limits.DECODED_BYTES < len(frames) < 65_535, "it fits into the window that the peer was given"
    pieces = [frames[start : start + 16_000] for start in range(0, len(frames), 16_000)]
    told = ask(answers(*pieces, trailers=[("grpc-status", "7"), ("grpc-message", "no more")]))
    assert told.messages == [UPDATE, MANY, UPDATE]
    assert told.ends == [Status(7, "no more")]


def test_a_long_message_that_is_none_ends_the_call() -> None:
    data = MANY.SerializeToString()[:-1] + b"\xff"
    frames = grpc.frame(data) + grpc.frame(UPDATE.SerializeToString())
    told = ask(answers(*(frames[start : start + 16_000] for start in range(0, len(frames), 16_000))))
    assert told.messages == []
    assert told.ends[0].code == grpc.INTERNAL and "io.linkerd.proxy.destination.Update: " in told.ends[0].message
