"""Streams that are opened again: backoff, refusals, limits; with real sockets and short times."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest

from proxy.api import destination_pb2, services
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.subscription import StreamLimits, StreamSettings, Subscription
from proxy.core.backoff import Backoff
from proxy.http.grpc import Status
from tests.control.controller import FAST, Controller, Feed, channel_to, run
from tests.kit.sockets import Ticking, until

UNLIMITED = StreamLimits()
REQUEST = destination_pb2.GetDestination(path="web:80")


class Subscriber:
    def __init__(self, channel: Channel, limits: StreamLimits = UNLIMITED, backoff: Backoff = FAST) -> None:
        self.heard: list[tuple[str, bool]] = []
        """The names of the profiles, and whether each was the first of its stream."""
        self.refusals: list[Status] = []
        self.subscription = Subscription(
            channel,
            services.GET_PROFILE,
            REQUEST,
            StreamSettings(backoff, limits),
            self.on_message,
            self.refusals.append,
        )

    def on_message(self, message: Any, is_first: bool) -> None:
        self.heard.append((message.fully_qualified_name, is_first))
        if message.fully_qualified_name == "poison":
            raise RuntimeError("a reader's fault")


def profile(name: str) -> destination_pb2.DestinationProfile:
    return destination_pb2.DestinationProfile(fully_qualified_name=name)


async def opened(feed: Feed, count: int) -> None:
    await until(lambda: feed.opened >= count, f"stream {count} is opened")


@pytest.mark.acceptance("STRM-04")
def test_the_value_is_replaced_after_reconnecting_and_a_failure_waits_for_its_backoff(controller: Controller) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel, backoff=Backoff(0.05, 0.05, 0.0))
        began_at = asyncio.get_running_loop().time()
        one.subscription.open()
        await opened(feed, 1)
        feed.say(grpc.StatusCode.UNAVAILABLE)
        await opened(feed, 2)
        assert asyncio.get_running_loop().time() - began_at >= 0.05
        assert not one.heard
        feed.say(profile("one"))
        await until(lambda: one.heard)
        feed.say(None)
        await opened(feed, 3)
        feed.say(profile("two"), profile("three"))
        await until(lambda: len(one.heard) == 3)
        assert one.heard == [("one", True), ("two", True), ("three", False)]
        one.subscription.close()
        await until(lambda: feed.closed == 3)
        channel.close()

    run(story)


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION])
def test_a_refusal_is_final(controller: Controller, code: grpc.StatusCode) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel)
        one.subscription.open()
        await opened(feed, 1)
        feed.say(code)
        await until(lambda: one.refusals)
        assert one.refusals == [Status(code.value[0], "told to")]
        assert one.subscription.is_over, "nothing is asked again"
        channel.close()

    run(story)


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL, None]
)
def test_anything_else_is_asked_again(controller: Controller, code: grpc.StatusCode | None) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel)
        one.subscription.open()
        for count in (1, 2, 3):
            await opened(feed, count)
            feed.say(code)
        await opened(feed, 4)
        assert not one.refusals
        one.subscription.close()
        channel.close()

    run(story)


def test_an_end_is_warned_of_once_until_there_is_news(controller: Controller, caplog: pytest.LogCaptureFixture) -> None:
    feed = controller.feed(services.GET_PROFILE)

    def warnings() -> list[str]:
        return [one.getMessage() for one in caplog.records if "asking again" in one.getMessage()]

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel)
        one.subscription.open()
        for count in range(1, 4):
            await opened(feed, count)
            feed.say(grpc.StatusCode.NOT_FOUND)
        await opened(feed, 4)
        assert len(warnings()) == 1 and "NOT_FOUND" in warnings()[0]
        feed.say(grpc.StatusCode.UNAVAILABLE)
        await opened(feed, 5)
        assert len(warnings()) == 2, "another end is news"
        feed.say(profile("a"), grpc.StatusCode.UNAVAILABLE)
        await opened(feed, 6)
        assert len(warnings()) == 3, "so is the same one after an answer"
        one.subscription.close()
        channel.close()

    with caplog.at_level(logging.WARNING):
        run(story)


def test_waits_grow_from_failure_to_failure_and_begin_anew_after_an_answer(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    feed = controller.feed(services.GET_PROFILE)

    def waits() -> list[str]:
        said = [one.getMessage().partition("asking again in ") for one in caplog.records]
        return [wait for _, mark, wait in said if mark]

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel, backoff=Backoff(0.01, 60.0, 0.0))
        one.subscription.open()
        for count in range(1, 5):
            await opened(feed, count)
            feed.say(grpc.StatusCode.UNAVAILABLE)
        await opened(feed, 5)
        assert waits() == ["0.01s", "0.02s", "0.04s", "0.08s"]
        feed.say(profile("good"))
        await until(lambda: one.heard)
        await asyncio.sleep(0.02)  # it has lived for the least wait: a stream's end by itself is no failure
        feed.say(None)
        await opened(feed, 6)
        feed.say(grpc.StatusCode.UNAVAILABLE)
        await opened(feed, 7)
        assert waits()[4:] == ["0s", "0.01s"]
        one.subscription.close()
        channel.close()

    with caplog.at_level(logging.DEBUG):
        run(story)


def test_a_server_that_ends_every_stream_at_once_makes_no_loop(controller: Controller) -> None:
    count = 0

    def answer(request: Any, context: Any) -> Any:
        nonlocal count
        count += 1
        yield profile("hasty")

    controller.on(services.GET_PROFILE, answer)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel, backoff=Backoff(0.1, 0.1, 0.0))
        began_at = asyncio.get_running_loop().time()
        one.subscription.open()
        await until(lambda: count >= 3)
        assert asyncio.get_running_loop().time() - began_at >= 0.2, "each waits for the backoff"
        one.subscription.close()
        channel.close()

    run(story)


def test_a_readers_fault_ends_that_stream_only(controller: Controller) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel)
        one.subscription.open()
        await opened(feed, 1)
        feed.say(profile("poison"))
        await opened(feed, 2)
        feed.say(profile("sound"))
        await until(lambda: ("sound", True) in one.heard)
        one.subscription.close()
        channel.close()

    run(story)


@pytest.mark.acceptance("STRM-01")
def test_no_answer_in_time_is_a_failure(controller: Controller, caplog: pytest.LogCaptureFixture) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel, StreamLimits(initial_s=0.001))
        one.subscription.open()
        await opened(feed, 2)
        one.subscription.close()
        channel.close()

    run(story)
    assert "DEADLINE_EXCEEDED: initial item not received within timeout" in caplog.text


@pytest.mark.acceptance("STRM-01")
def test_a_head_without_a_first_message_is_a_failure_too(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    began = 0

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        nonlocal began
        context.send_initial_metadata(())
        began += 1
        feed = Feed()
        yield from feed(request, context)

    controller.on(services.GET_PROFILE, answer)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel, StreamLimits(initial_s=0.05))
        one.subscription.open()
        await until(lambda: began >= 2)
        one.subscription.close()
        channel.close()

    run(story)
    assert "DEADLINE_EXCEEDED" in caplog.text


@pytest.mark.acceptance("STRM-02")
def test_no_further_message_in_time_ends_the_stream_normally(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel, StreamLimits(idle_s=0.5))
        one.subscription.open()
        await opened(feed, 1)
        feed.say(profile("one"))
        await asyncio.sleep(0.3)
        feed.say(profile("two"))
        await asyncio.sleep(0.3)
        assert feed.opened == 1, "each message starts the wait anew"
        await opened(feed, 2)
        assert one.heard == [("one", True), ("two", False)]
        one.subscription.close()
        channel.close()

    run(story)
    assert "DEADLINE_EXCEEDED" not in caplog.text


@pytest.mark.acceptance("STRM-03")
def test_a_stream_ends_with_its_lifetime_however_busy_it_is(controller: Controller) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel, StreamLimits(lifetime_s=0.2))
        one.subscription.open()
        await opened(feed, 1)
        began_at = asyncio.get_running_loop().time()
        while feed.opened == 1:
            feed.say(profile("busy"))
            await asyncio.sleep(0.02)
        assert 0.15 <= asyncio.get_running_loop().time() - began_at < 1.0
        assert len(one.heard) > 3
        assert [is_first for _, is_first in one.heard] == [True] + [False] * (len(one.heard) - 1)
        one.subscription.close()
        channel.close()

    run(story)


def test_the_server_is_killed_and_comes_back(controller: Controller) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel)
        one.subscription.open()
        await opened(feed, 1)
        feed.say(profile("before"))
        await until(lambda: one.heard)
        controller.stop()
        await until(lambda: feed.closed == 1)
        controller.start()
        await opened(feed, 2)
        feed.say(profile("after"))
        await until(lambda: len(one.heard) == 2)
        assert one.heard == [("before", True), ("after", True)]
        assert not one.refusals
        one.subscription.close()
        channel.close()

    run(story)


def test_closing_while_it_waits_to_ask_again_asks_no_more(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    feed = controller.feed(services.GET_PROFILE)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        one = Subscriber(channel, backoff=Backoff(0.05, 0.05, 0.0))
        one.subscription.open()
        await opened(feed, 1)
        feed.say(grpc.StatusCode.UNAVAILABLE)
        await until(lambda: "asking again" in caplog.text)
        one.subscription.close()
        one.subscription.close()
        other = Subscriber(channel)
        other.subscription.open()
        for count in (2, 3, 4):
            await opened(feed, count)
            feed.say(grpc.StatusCode.UNAVAILABLE)
        await until(lambda: feed.closed == 4)
        assert feed.opened == 4, "only the other one asked"
        other.subscription.close()
        channel.close()

    run(story)
