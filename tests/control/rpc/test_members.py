"""Several addresses of one controller: failover, backoff, addresses that come and go, counts, keepalive."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from proxy.api import destination_pb2, identity_pb2, services
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.settings import ChannelSettings
from proxy.control.rpc.subscription import StreamSettings, Subscription
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.backoff import Backoff
from proxy.http.grpc import Status
from proxy.http.h2.frames.settings import H2Settings
from proxy.transport.plain import dial_plain
from tests.control.controller import FAST, Controller, run
from tests.kit.sockets import REFUSING, REFUSING_TOO, Ticking, until

TARGET = ControlAddr("controller.example", 8080, "controller")
REQUEST = identity_pb2.CertifyRequest(identity="web")


class Given:
    """Names that a test resolves itself."""

    def __init__(self, *addrs: Addr) -> None:
        self.addrs = addrs
        self.tell: Callable[[Iterable[Addr]], None] = lambda addrs: None
        self.is_closed = False

    def resolve(
        self, target: ControlAddr, backoff: Backoff, client: str, on_addresses: Callable[[Iterable[Addr]], None]
    ) -> Given:
        self.tell = on_addresses
        on_addresses(self.addrs)
        return self

    def close(self) -> None:
        self.is_closed = True


class Scope:
    """Records the calls of a metrics scope."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def request(self) -> None:
        self.told.append(("request",))

    def response_began(self, status: int, latency_s: float) -> None:
        self.told.append(("began", status))
        assert 0 <= latency_s < 5

    def ended(self, status: int, is_success: bool, grpc_status: str, error: str) -> None:
        self.told.append(("ended", status, is_success, grpc_status, error))


def channel_by(ticking: Ticking, names: Given, scope: Scope | None = None, **settings: Any) -> Channel:
    reactor = ticking.reactor
    return Channel(
        reactor,
        ChannelSettings("test", TARGET, settings.pop("backoff", FAST), **settings),
        lambda addr, make_codec, options: dial_plain(reactor, addr, make_codec, options),
        names,
        scope,
    )


async def certify(channel: Channel) -> Any:
    replies: list[identity_pb2.CertifyResponse | Status] = []
    channel.call(services.CERTIFY, REQUEST, replies.append)
    await until(lambda: replies)
    return replies[0]


def answer_with(leaf: bytes = b"") -> Callable[[Any, Any], Any]:
    def answer(request: Any, context: Any) -> Any:
        return identity_pb2.CertifyResponse(leaf_certificate=leaf)

    return answer


@pytest.fixture
def pair() -> Iterator[tuple[Controller, Controller]]:
    both = (Controller(), Controller())
    for index, one in enumerate(both):
        one.on(services.CERTIFY, answer_with(bytes((index,))))
        one.start()
    yield both
    for one in both:
        one.stop()


def addr_of(controller: Controller) -> Addr:
    return Addr("127.0.0.1", controller.port)


def test_a_dead_address_costs_no_call(controller: Controller) -> None:
    controller.on(services.CERTIFY, answer_with())

    async def story(ticking: Ticking) -> None:
        channel = channel_by(ticking, Given(REFUSING, addr_of(controller), REFUSING_TOO))
        for _ in range(20):
            assert isinstance(await certify(channel), identity_pb2.CertifyResponse)
        channel.close()

    run(story)


def test_a_controller_that_is_gone_and_comes_back_is_said_once_each(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    controller.on(services.CERTIFY, answer_with())
    caplog.set_level(logging.INFO)

    def said(words: str) -> list[str]:
        return [text for record in caplog.records if words in (text := record.getMessage())]

    async def story(ticking: Ticking) -> None:
        both = channel_by(ticking, Given(REFUSING, addr_of(controller)))
        for _ in range(20):  # of two addresses one is drawn
            await certify(both)
        assert not said(" is gone "), "another address answers"
        both.close()
        channel = channel_by(ticking, Given(addr_of(controller)))
        await certify(channel)
        assert not said(" is back "), "it never was away"
        controller.stop()
        replies: list[Any] = []
        channel.call(services.CERTIFY, REQUEST, replies.append)
        before = len(said("failed to connect"))
        await until(lambda: said(" is gone ") and len(said("failed to connect")) >= before + 3)
        (line,) = said(" is gone ")
        assert line.startswith("test controller controller.example:8080 is gone (Connection refused")
        controller.start()
        await until(lambda: said(" is back "))
        assert len(said(" is gone ")) == len(said(" is back ")) == 1
        channel.close()

    run(story)


def test_calls_spread_over_the_addresses(pair: tuple[Controller, Controller]) -> None:
    async def story(ticking: Ticking) -> None:
        channel = channel_by(ticking, Given(*map(addr_of, pair)))
        answers = {(await certify(channel)).leaf_certificate for _ in range(60)}
        assert answers == {b"\0", b"\1"}
        channel.close()

    run(story)


def test_addresses_come_and_go(pair: tuple[Controller, Controller]) -> None:
    first, second = pair
    feed = first.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        names = Given()
        channel = channel_by(ticking, names)
        replies: list[Any] = []
        channel.call(services.CERTIFY, REQUEST, replies.append)
        names.tell([addr_of(first)])
        await until(lambda: replies)
        assert replies[0].leaf_certificate == b"\0"
        messages: list[Any] = []
        ends: list[Status] = []
        request = destination_pb2.GetDestination(path="web:80")
        channel.watch(services.DESTINATION_GET, request, messages.append, ends.append)
        await until(lambda: feed.opened)
        names.tell([addr_of(second)])
        assert (await certify(channel)).leaf_certificate == b"\1"
        feed.say(destination_pb2.Update(no_endpoints=destination_pb2.NoEndpoints()))
        await until(lambda: messages)
        assert not ends, "a stream on an address that is gone runs on"
        channel.close()
        assert names.is_closed

    run(story)


def test_calls_are_counted() -> None:
    async def story(ticking: Ticking) -> None:
        controller = Controller()
        controller.on(services.CERTIFY, answer_with())
        controller.start()
        scope = Scope()
        channel = channel_by(ticking, Given(addr_of(controller)), scope)
        await certify(channel)
        assert scope.told == [("request",), ("began", 200), ("ended", 200, True, "0", "")]
        scope.told.clear()
        replies: list[Any] = []
        channel.call(services.DESTINATION_GET, destination_pb2.GetDestination(), replies.append)
        await until(lambda: replies)
        assert scope.told == [("request",), ("began", 200), ("ended", 200, True, "12", "")]
        scope.told.clear()
        feed = controller.feed(services.GET_PROFILE)
        profiles: list[Any] = []
        call = channel.watch(services.GET_PROFILE, destination_pb2.GetDestination(), profiles.append, replies.append)
        await until(lambda: feed.opened)
        feed.say(destination_pb2.DestinationProfile())
        await until(lambda: profiles)
        call.cancel()
        assert scope.told == [("request",), ("began", 200), ("ended", 200, True, "2", "")]
        channel.close()
        controller.stop()

    run(story)


def test_a_channel_counts_as_a_balancer() -> None:
    """A channel shows its numbers as a balancer: its addresses, its queue, and the gate, which is shut from the first
    call that waited in vain until one can be sent again.
    """

    async def story(ticking: Ticking) -> None:
        controller = Controller()
        controller.on(services.CERTIFY, answer_with())
        controller.start()
        names = Given()
        channel = channel_by(ticking, names, queue_wait_s=0.01)
        counts = channel.counts
        assert channel.sizes() == (0, 0, 0) and (counts.resets, counts.opened, counts.shut) == (0, 1, 0)
        assert isinstance(await certify(channel), Status)
        assert (counts.opened, counts.shut) == (1, 1) and counts.shut_at and not counts.opened_at
        names.tell([addr_of(controller)])
        assert channel.sizes() == (0, 1, 1) and counts.resets == 1
        assert isinstance(await certify(channel), identity_pb2.CertifyResponse)
        assert (counts.opened, counts.shut) == (2, 1) and counts.opened_at
        assert (counts.joined, counts.passed) == (1, 1) and sum(counts.waits) == 1
        names.tell([addr_of(controller)])
        assert counts.resets == 1, "nothing has changed"
        closed: list[int] = []

        class Shown:
            def close(self) -> None:
                closed.append(channel.sizes()[2])

        channel.shown = Shown()
        channel.close()
        channel.close()
        assert closed == [0], "once, when its addresses are gone"
        controller.stop()

    run(story)


def test_while_the_controller_is_away_calls_fail_at_once_and_streams_wait_for_it(controller: Controller) -> None:
    """A thousand streams that would each ask again every half second do nothing until a connection stands."""

    async def story(ticking: Ticking) -> None:
        channel = channel_by(ticking, Given(addr_of(controller)), queue_wait_s=0.05)
        feed = controller.feed(services.GET_PROFILE)
        controller.stop()
        asked = [
            Subscription(
                channel, services.GET_PROFILE, destination_pb2.GetDestination(path=f"{number}:80"),
                StreamSettings(Backoff(0.001, 0.001, 0.0)), lambda message, is_first: None, lambda status: None,
            )
            for number in range(5)
        ]  # fmt: skip
        for one in asked:
            one.open()
        await until(lambda: len(channel.retrying) == 5)
        assert channel.is_away
        joined = channel.counts.joined
        began = ticking.reactor.clock()
        assert "no connection to controller.example:8080 in 0.05s" in str(await certify(channel))
        assert channel.counts.joined == joined, "the call has not waited"
        assert ticking.reactor.clock() - began < 10
        assert len(channel.retrying) == 5, "none has asked in the meantime"
        controller.start()
        await until(lambda: feed.opened == 5)
        assert not channel.is_away and not channel.retrying
        for one in asked:
            one.close()
        channel.close()

    run(story)


def test_a_stream_that_is_closed_while_the_controller_is_away_is_not_asked_again(controller: Controller) -> None:
    async def story(ticking: Ticking) -> None:
        channel = channel_by(ticking, Given(REFUSING), queue_wait_s=0.01)
        request = destination_pb2.GetDestination(path="web:80")
        one = Subscription(
            channel,
            services.GET_PROFILE,
            request,
            StreamSettings(FAST),
            lambda message, is_first: None,
            lambda status: None,
        )
        one.open()
        await until(lambda: channel.is_away and one in channel.retrying)
        one.close()
        assert not channel.retrying
        channel.close()

    run(story)


def test_a_callback_that_raises_keeps_no_other_call_from_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        channel = channel_by(ticking, Given(), queue_wait_s=0.01)
        await certify(channel)
        assert channel.is_away

        def broken(reply: Any) -> None:
            raise RuntimeError("a fault of ours")

        channel.call(services.CERTIFY, REQUEST, broken)
        assert isinstance(await certify(channel), Status)
        channel.close()

    run(story)
    assert "a fault of ours" in caplog.text


def test_a_peer_that_takes_no_stream_is_asked_again_after_a_step_of_the_backoff() -> None:
    """Its connection stands, so none has to be made; the call waits, and no other one reaches the peer meanwhile."""

    async def story(ticking: Ticking) -> None:
        controller = Controller()
        controller.on(services.CERTIFY, answer_with())
        controller.start()
        channel = channel_by(ticking, Given(addr_of(controller)), backoff=Backoff(3600.0, 3600.0, 0.0))
        assert isinstance(await certify(channel), identity_pb2.CertifyResponse)
        member = channel._balancer.ready.pick(0.0)
        assert member is not None
        member.failed()
        member.failed()  # every call of the connection reports it
        assert channel.sizes() == (0, 0, 1)
        replies: list[Any] = []
        channel.call(services.CERTIFY, REQUEST, replies.append)
        await until(lambda: channel.sizes()[0] == 1)
        member._reconnect._connect()
        await until(lambda: replies)
        assert isinstance(replies[0], identity_pb2.CertifyResponse) and len(member.pool) == 1
        channel.close()
        controller.stop()

    run(story)


def test_a_controller_that_vanished_is_noticed_by_its_silence() -> None:
    async def story(ticking: Ticking) -> None:
        silent = socket.create_server(("127.0.0.1", 0))
        http2 = H2Settings(keepalive_interval_s=0.05, keepalive_timeout_s=0.05)
        channel = channel_by(ticking, Given(Addr(*silent.getsockname())), http2=http2)
        ends: list[Status] = []
        request = destination_pb2.GetDestination(path="web:80")
        channel.watch(services.DESTINATION_GET, request, lambda message: None, ends.append)
        await until(lambda: ends)
        assert ends[0].name == "UNAVAILABLE"
        channel.close()
        silent.close()

    run(story)
