"""A controller's last answers while it cannot be reached: which count as stale, since when, and what ends that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import grpc
import pytest

from proxy.api import destination_pb2, services
from proxy.balance.endpoints import Resolution
from proxy.control.destination import Destinations
from proxy.control.rpc.subscription import StreamLimits, StreamSettings
from proxy.control.stale import Stale
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.core.watch import Watch
from proxy.policy.endpoint import EndpointMeta
from tests.control.controller import FAST, Controller, channel_to, run
from tests.kit.sockets import Ticking, until

PATH = "web.ns.svc.cluster.local:80"


def added(*ports: int) -> destination_pb2.Update:
    update = destination_pb2.Update()
    for port in ports:
        one = update.add.addrs.add()
        one.addr.ip.ipv4 = 0x7F000001
        one.addr.port = port
    return update


def ports(watch: Watch[Resolution[EndpointMeta]]) -> list[int]:
    return [one.port for one in watch.value.endpoints if one.ip == Addr("127.0.0.1", 1).ip]


def test_what_was_said_last_holds_while_the_controller_is_away_and_its_first_word_replaces_it(
    controller: Controller,
) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = Destinations(channel, StreamSettings(FAST), "").endpoints(PATH)
        await until(lambda: feed.opened)
        assert not len(channel.stale), "what was never known is not stale"
        feed.say(added(1, 2))
        await until(lambda: ports(watch) == [1, 2])
        controller.stop()
        await until(lambda: len(channel.stale) == 1)
        ticking.now += 3600.0
        assert channel.stale.age_s >= 3600.0 and "has not answered for 3" in str(channel.stale)
        assert ports(watch) == [1, 2]
        opened = feed.opened
        controller.start()
        await until(lambda: feed.opened > opened)
        assert ports(watch) == [1, 2] and len(channel.stale) == 1, "it is there, but has not said anything"
        feed.say(added(3))
        await until(lambda: ports(watch) == [3])
        assert not len(channel.stale) and channel.stale.age_s == 0.0
        watch.close()
        channel.close()

    run(story)


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_a_controller_that_is_reached_but_does_not_answer_is_away(controller: Controller, how: str) -> None:
    feed = controller.feed(services.DESTINATION_GET)
    limits = StreamLimits(0.3, 0.3) if how == "hangs" else StreamLimits()

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = Destinations(channel, StreamSettings(FAST, limits), "").endpoints(PATH)
        await until(lambda: feed.opened)
        # A busy machine may be too slow for the limit: then the next stream reports it.
        await until(lambda: ports(watch) == [1] or feed.say(added(1)))  # type: ignore[func-returns-value]
        if how == "refuses":
            feed.say(grpc.StatusCode.UNAVAILABLE)
        await until(lambda: len(channel.stale) == 1)
        watch.close()
        assert not len(channel.stale), "nobody asks any more"
        channel.close()

    run(story)


def test_all_that_is_stale_is_asked_again_once_the_controller_is_back(controller: Controller) -> None:
    """When the controller is back, all stale answers are asked for again at once: no stream waits for the end of its
    own backoff.
    """
    feed = controller.feed(services.DESTINATION_GET)
    patient = StreamSettings(Backoff(3600.0, 3600.0, 0.0))

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        watch = Destinations(channel, patient, "").endpoints(PATH)
        await until(lambda: feed.opened)
        feed.say(added(1))
        await until(lambda: ports(watch) == [1])
        controller.stop()
        await until(lambda: len(channel.stale) == 1)
        other = Destinations(channel, StreamSettings(FAST), "").endpoints("other.ns.svc.cluster.local:80")
        await asyncio.sleep(0.1)
        opened = feed.opened
        controller.start()
        await until(lambda: feed.opened >= opened + 2, "both ask")
        watch.close()
        other.close()
        channel.close()

    run(story)


class Asked:
    """A stream."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    with caplog.at_level(logging.INFO, "proxy.control.stale"):
        yield caplog.messages


def test_it_is_said_once_however_it_flaps(said: list[str], caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    stale = Stale("destination controller x:1", clock)
    a, b = Asked(), Asked()
    for _ in range(100):
        stale.begin(a)
        clock.now += 1.0
        stale.look()
        stale.end(a)
    assert not caplog.messages, "each time it answered again within seconds"
    stale.begin(a)
    stale.begin(b)
    for _ in range(100):
        clock.now += 1.0
        stale.begin(b)
        stale.look()
    stale.end(a)
    stale.end(a)
    assert stale.age_s == 100.0 and len(stale) == 1
    stale.end(b)
    assert caplog.messages == [
        "destination controller x:1 has not answered for 5s (2 streams): what it said last is used until it answers again",
        "destination controller x:1 answers again",
    ]
