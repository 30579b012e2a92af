"""Policies of both directions as they change: answers, absences, refusals, broken messages, a server that dies."""

from __future__ import annotations

import grpc
import pytest

from proxy.api import inbound_pb2, outbound_pb2, services
from proxy.control.inbound_policy import InboundPolicies
from proxy.control.outbound_policy import OutboundPolicies
from proxy.control.rpc.subscription import StreamSettings
from proxy.core.address.addr import Addr
from proxy.core.watch import Absent
from proxy.policy import client, server
from proxy.policy.client import ClientPolicy
from proxy.policy.defaults import default_policy
from proxy.policy.defaults import invalid_policy as invalid_server_policy
from proxy.policy.meta import Meta, default_meta
from tests.control.controller import FAST, Controller, channel_to, run
from tests.kit.sockets import Ticking, until

WORKLOAD = '{"ns":"bench", "pod":"web-0"}'
ADDR = Addr("10.0.0.1", 80)


def outbound(name: str) -> outbound_pb2.OutboundPolicy:
    message = outbound_pb2.OutboundPolicy()
    message.metadata.default = name
    message.protocol.opaque.SetInParent()
    return message


def inbound(name: str) -> inbound_pb2.Server:
    message = inbound_pb2.Server(labels={"name": name})
    message.protocol.opaque.SetInParent()
    return message


def test_an_outbound_policy_follows_its_messages(controller: Controller) -> None:
    feed = controller.feed(services.OUTBOUND_WATCH)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = OutboundPolicies(channel, StreamSettings(FAST), WORKLOAD).watch(ADDR)
        assert watch.value is None
        await until(lambda: feed.opened)
        assert feed.requests[0].source_workload == WORKLOAD
        assert feed.requests[0].addr.ip.ipv4 == 0x0A000001
        assert feed.requests[0].addr.port == 80
        feed.say(outbound("one"))
        await until(lambda: watch.value == ClientPolicy(default_meta("one"), client.OPAQUE))
        feed.say(outbound_pb2.OutboundPolicy())
        await until(lambda: watch.value == client.invalid_policy())
        feed.say(outbound("two"))
        await until(lambda: watch.value == ClientPolicy(default_meta("two"), client.OPAQUE))
        feed.say(grpc.StatusCode.NOT_FOUND)
        await until(lambda: feed.closed == 1)
        assert watch.value == ClientPolicy(default_meta("two"), client.OPAQUE)
        watch.close()
        channel.close()

    run(story)


def test_an_outbound_policy_of_a_name_and_of_an_ipv6_address(controller: Controller) -> None:
    feed = controller.feed(services.OUTBOUND_WATCH)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        policies = OutboundPolicies(channel, StreamSettings(FAST), WORKLOAD)
        policies.watch("web.ns.svc.cluster.local:80")
        await until(lambda: feed.opened == 1)
        policies.watch(Addr("fd00::1", 81))
        await until(lambda: feed.opened == 2)
        assert feed.requests[0].authority == "web.ns.svc.cluster.local:80"
        assert (feed.requests[1].addr.ip.ipv6.first, feed.requests[1].addr.ip.ipv6.last) == (0xFD00 << 48, 1)
        channel.close()

    run(story)


@pytest.mark.parametrize(
    ("code", "is_refusal"),
    [
        (grpc.StatusCode.NOT_FOUND, False),
        (grpc.StatusCode.UNIMPLEMENTED, False),
        (grpc.StatusCode.INVALID_ARGUMENT, True),
        (grpc.StatusCode.FAILED_PRECONDITION, True),
    ],
)
def test_an_absent_outbound_policy_is_an_answer(
    controller: Controller, code: grpc.StatusCode, is_refusal: bool
) -> None:
    feed = controller.feed(services.OUTBOUND_WATCH)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = OutboundPolicies(channel, StreamSettings(FAST), WORKLOAD).watch(ADDR)
        await until(lambda: feed.opened)
        feed.say(code)
        await until(lambda: watch.value is not None)
        assert watch.value == Absent(f"{code.name}: told to", is_refusal)
        channel.close()

    run(story)


def test_an_outbound_policy_waits_through_other_errors(controller: Controller) -> None:
    feed = controller.feed(services.OUTBOUND_WATCH)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = OutboundPolicies(channel, StreamSettings(FAST), WORKLOAD).watch(ADDR)
        for count, ending in enumerate((grpc.StatusCode.UNAVAILABLE, None, grpc.StatusCode.INTERNAL), 1):
            await until(lambda count=count: feed.opened == count)  # type: ignore[misc]
            assert watch.value is None
            feed.say(ending)
        await until(lambda: feed.opened == 4)
        feed.say(outbound("at last"))
        await until(lambda: watch.value is not None)
        channel.close()

    run(story)


def test_an_inbound_policy_begins_with_the_default_and_follows_its_messages(controller: Controller) -> None:
    feed = controller.feed(services.INBOUND_WATCH_PORT)
    initial = default_policy("all-unauthenticated", (), 10.0)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = InboundPolicies(channel, StreamSettings(FAST), WORKLOAD, 10.0).watch(8080, initial)
        assert watch.value is initial
        await until(lambda: feed.opened)
        assert feed.requests == [inbound_pb2.PortSpec(workload=WORKLOAD, port=8080)]
        feed.say(inbound("one"))
        await until(lambda: watch.value.protocol == server.OPAQUE)
        assert watch.value.meta == Meta("policy.linkerd.io", "server", "one")
        feed.say(inbound_pb2.Server())
        await until(lambda: watch.value == invalid_server_policy(10.0))
        controller.stop()
        await until(lambda: feed.closed == 1)
        assert watch.value == invalid_server_policy(10.0)
        controller.start()
        await until(lambda: feed.opened == 2)
        feed.say(inbound("two"))
        await until(lambda: watch.value.meta.name == "two")
        watch.close()
        await until(lambda: feed.closed == 2)
        channel.close()

    run(story)


def test_a_refused_inbound_policy_leaves_the_default(controller: Controller) -> None:
    feed = controller.feed(services.INBOUND_WATCH_PORT)
    initial = default_policy("deny", (), 10.0)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = InboundPolicies(channel, StreamSettings(FAST), WORKLOAD, 10.0).watch(8080, initial)
        await until(lambda: feed.opened)
        feed.say(grpc.StatusCode.INVALID_ARGUMENT)
        await until(lambda: feed.closed == 1)
        assert watch.value is initial
        assert feed.opened == 1
        channel.close()

    run(story)
