"""Endpoints and profiles as they change: every kind of update, reconnects, refusals."""

from __future__ import annotations

import logging
from typing import Any

import grpc
import pytest

from proxy.api import destination_pb2, net_pb2, services
from proxy.balance.endpoints import ABSENT, FAILED, KNOWN, PENDING
from proxy.control.convert.fields import ip_message
from proxy.control.destination import Destinations
from proxy.control.rpc.subscription import StreamSettings
from proxy.core.address.addr import Addr
from proxy.core.watch import Absent
from proxy.policy.profiles.profile import Profile
from tests.control.controller import FAST, Controller, Feed, channel_to, run
from tests.kit.sockets import Ticking, until


def tcp(ip: str) -> net_pb2.TcpAddress:
    return net_pb2.TcpAddress(ip=ip_message(ip), port=8080)


def add(*ips: str, **labels: str) -> destination_pb2.Update:
    addrs = [destination_pb2.WeightedAddr(addr=tcp(ip), weight=1) for ip in ips]
    return destination_pb2.Update(add=destination_pb2.WeightedAddrSet(addrs=addrs, metric_labels=labels))


def remove(*ips: str) -> destination_pb2.Update:
    return destination_pb2.Update(remove=destination_pb2.AddrSet(addrs=[tcp(ip) for ip in ips]))


def none(exists: bool) -> destination_pb2.Update:
    return destination_pb2.Update(no_endpoints=destination_pb2.NoEndpoints(exists=exists))


class Asked:
    """One name that was looked up; keeps what was known after each update."""

    def __init__(self, ticking: Ticking, controller: Controller, feed: Feed) -> None:
        self.channel = channel_to(ticking.reactor, controller.target)
        self.destinations = Destinations(self.channel, StreamSettings(FAST), "token")
        self.feed = feed
        self.watch = self.destinations.endpoints("web:80")

    @property
    def ips(self) -> list[str]:
        return [addr.ip for addr in self.watch.value.endpoints]

    async def become(self, *ips: str) -> None:
        await until(lambda: self.ips == list(ips) and self.watch.value.state == KNOWN, f"endpoints are {ips}")

    async def stream(self, count: int) -> None:
        await until(lambda: self.feed.opened >= count, f"stream {count} is opened")

    def close(self) -> None:
        self.watch.close()
        self.channel.close()


def test_endpoints_follow_the_updates(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        asked = Asked(ticking, controller, feed)
        assert asked.watch.value.state == PENDING
        await asked.stream(1)
        assert feed.requests == [destination_pb2.GetDestination(path="web:80", context_token="token")]
        feed.say(remove("10.0.0.9"), add("10.0.0.1", "10.0.0.2"))
        await asked.become("10.0.0.1", "10.0.0.2")
        feed.say(add("10.0.0.3"), remove("10.0.0.1", "10.0.0.7"))
        await asked.become("10.0.0.2", "10.0.0.3")
        feed.say(none(True))
        await asked.become()
        feed.say(add("fd00::1"))
        await asked.become("fd00::1")
        feed.say(none(False))
        await until(lambda: asked.watch.value.state == ABSENT)
        assert not asked.ips
        asked.close()
        await until(lambda: feed.closed == 1, "closing the watch cancels the stream")

    run(story)


def test_a_changed_endpoint_set_is_a_line(controller: Controller, caplog: pytest.LogCaptureFixture) -> None:
    feed = controller.feed(services.DESTINATION_GET)
    caplog.set_level(logging.INFO, "proxy.control.destination")

    async def story(ticking: Ticking) -> None:
        asked = Asked(ticking, controller, feed)
        await asked.stream(1)
        feed.say(add("10.0.0.1", "10.0.0.2"), add("10.0.0.1", zone="b"), remove("10.0.0.1", "10.0.0.7"))
        await asked.become("10.0.0.2")
        feed.say(add(*(f"10.0.1.{number}" for number in range(1, 7))), none(True), none(False), none(False))
        await until(lambda: asked.watch.value.state == ABSENT)
        asked.close()

    run(story)
    few = "10.0.1.1:8080, 10.0.1.2:8080, 10.0.1.3:8080, 10.0.1.4:8080"
    assert [record.getMessage().removeprefix("endpoints of web:80: ") for record in caplog.records] == [
        "2 now, 10.0.0.1:8080, 10.0.0.2:8080 came",
        "1 now, 10.0.0.1:8080 went",
        f"7 now, {few} and 2 more came",
        f"0 now, 10.0.0.2:8080, {few.removesuffix(', 10.0.1.4:8080')} and 3 more went",
        "the control plane knows no such service",
    ]


def test_metadata_is_part_of_an_endpoint(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        asked = Asked(ticking, controller, feed)
        changes: list[Any] = []
        asked.watch.subscribe(changes.append)
        await asked.stream(1)
        feed.say(add("10.0.0.1", zone="a"), add("10.0.0.1", zone="a"), add("10.0.0.1", zone="b"))
        await until(lambda: len(changes) == 2)
        assert changes[1].endpoints[Addr("10.0.0.1", 8080)].labels == (("zone", "b"),)
        asked.close()

    run(story)


def test_endpoints_stay_while_the_server_is_away_and_the_first_add_replaces_them(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        asked = Asked(ticking, controller, feed)
        await asked.stream(1)
        feed.say(add("10.0.0.1", "10.0.0.2"))
        await asked.become("10.0.0.1", "10.0.0.2")
        controller.stop()
        await until(lambda: feed.closed == 1)
        assert asked.ips == ["10.0.0.1", "10.0.0.2"]
        controller.start()
        await asked.stream(2)
        feed.say(remove("10.0.0.1"), add("10.0.0.3"))
        await asked.become("10.0.0.3")
        asked.close()

    run(story)


def test_a_refused_question_fails_for_good(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        asked = Asked(ticking, controller, feed)
        await asked.stream(1)
        feed.say(grpc.StatusCode.INVALID_ARGUMENT)
        await until(lambda: asked.watch.value.state == FAILED)
        assert asked.watch.value.error == "INVALID_ARGUMENT: told to"
        assert feed.opened == 1
        asked.close()

    run(story)


def test_a_profile_follows_its_messages(controller: Controller) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = Destinations(channel, StreamSettings(FAST), "").profile("10.0.0.1:8080")
        assert watch.value is None
        await until(lambda: feed.opened)
        feed.say(destination_pb2.DestinationProfile(fully_qualified_name="web.ns.svc.cluster.local"))
        await until(lambda: watch.value is not None)
        assert watch.value == Profile(name="web.ns.svc.cluster.local:8080")
        feed.say(destination_pb2.DestinationProfile(opaque_protocol=True), grpc.StatusCode.INVALID_ARGUMENT)
        await until(lambda: feed.closed == 1)
        assert watch.value == Profile(is_opaque=True), "a refusal later on takes nothing away"
        watch.close()
        channel.close()

    run(story)


def test_a_refused_profile_is_no_profile(controller: Controller) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = Destinations(channel, StreamSettings(FAST), "").profile("10.0.0.1:8080")
        await until(lambda: feed.opened)
        feed.say(grpc.StatusCode.FAILED_PRECONDITION)
        await until(lambda: watch.value is not None)
        assert watch.value == Absent("FAILED_PRECONDITION: told to", is_refusal=True)
        channel.close()

    run(story)
