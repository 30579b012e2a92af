"""Calls and watches against a real gRPC server: answers, errors, death and return of the server, the channel's queue."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import grpc
import pytest

from proxy.api import destination_pb2, identity_pb2, services
from proxy.control.rpc.channel import Channel
from proxy.core.address.control_addr import ControlAddr
from proxy.http import grpc as codes
from proxy.http.grpc import Status
from tests.control.controller import Controller, channel_to, run
from tests.kit.sockets import REFUSING, Ticking, until
from tests.kit.sockets import run as run_counting

REQUEST = destination_pb2.GetDestination(path="web:80", context_token="ctx")


class Ear:
    """Keeps what a caller's callbacks get."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.ends: list[Status] = []
        self.replies: list[Any] = []

    async def ended(self) -> Status:
        await until(lambda: self.ends)
        return self.ends[0]

    async def replied(self) -> Any:
        await until(lambda: self.replies)
        return self.replies[0]


def watch(channel: Channel, ear: Ear) -> Any:
    return channel.watch(services.DESTINATION_GET, REQUEST, ear.messages.append, ear.ends.append)


def certify(channel: Channel, ear: Ear) -> Any:
    request = identity_pb2.CertifyRequest(identity="web.ns", token=b"secret")
    return channel.call(services.CERTIFY, request, ear.replies.append)


def update(exists: bool = True) -> destination_pb2.Update:
    return destination_pb2.Update(no_endpoints=destination_pb2.NoEndpoints(exists=exists))


def test_a_call_is_answered(controller: Controller) -> None:
    def answer(request: Any, context: Any) -> Any:
        return identity_pb2.CertifyResponse(leaf_certificate=request.identity.encode() + request.token)

    controller.on(services.CERTIFY, answer)

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()
        certify(channel, ear)
        assert not ear.replies, "nothing is told within the call"
        assert (await ear.replied()).leaf_certificate == b"web.nssecret"
        assert controller.metadata[0]["user-agent"].startswith("sponson")
        channel.close()

    run(story)


def test_a_call_that_is_refused_gives_its_status(controller: Controller) -> None:
    def answer(request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "names differ: 100% ≠")

    controller.on(services.CERTIFY, answer)

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()
        certify(channel, ear)
        assert await ear.replied() == Status(codes.FAILED_PRECONDITION, "names differ: 100% ≠")
        channel.close()

    run(story)


def test_messages_come_one_by_one_and_the_end_once(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()
        watch(channel, ear)
        await until(lambda: feed.opened)
        assert feed.requests == [REQUEST]
        feed.say(update())
        await until(lambda: len(ear.messages) == 1)
        feed.say(update(False), update())
        await until(lambda: len(ear.messages) == 3)
        assert [one.no_endpoints.exists for one in ear.messages] == [True, False, True]
        feed.say(None)
        assert await ear.ended() == Status(codes.OK)
        channel.close()
        assert len(ear.ends) == 1

    run(story)


def test_a_large_message_arrives_whole(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)
    big = destination_pb2.Update(add=destination_pb2.WeightedAddrSet(metric_labels={"a": "x" * 2_000_000}))

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()
        watch(channel, ear)
        await until(lambda: feed.opened)
        feed.say(big, update())
        await until(lambda: len(ear.messages) == 2)
        assert ear.messages[0] == big
        channel.close()

    run(story)


def test_a_message_over_the_limit_ends_the_call(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()
        watch(channel, ear)
        await until(lambda: feed.opened)
        feed.say(destination_pb2.Update(add=destination_pb2.WeightedAddrSet(metric_labels={"a": "x" * 5_000_000})))
        status = await ear.ended()
        assert status.code == codes.INTERNAL
        assert "gRPC message of" in status.message
        channel.close()

    run(story)


def test_cancelling_reaches_the_server_and_says_nothing(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()
        call = watch(channel, ear)
        await until(lambda: feed.opened)
        call.cancel()
        call.cancel()
        await until(lambda: feed.closed == 1, "the server sees the cancellation")
        assert not ear.ends
        channel.close()

    run(story)


def test_the_caller_may_cancel_within_a_message(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()

        def on_message(message: Any) -> None:
            ear.messages.append(message)
            call.cancel()

        call = channel.watch(services.DESTINATION_GET, REQUEST, on_message, ear.ends.append)
        await until(lambda: feed.opened)
        feed.say(update(), update(), update())
        await until(lambda: feed.closed == 1)
        assert len(ear.messages) == 1
        assert not ear.ends
        channel.close()

    run(story)


def test_many_streams_share_a_connection(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel = channel_to(ticking.reactor, controller.target)
        ears = [Ear() for _ in range(12)]
        for ear in ears:
            watch(channel, ear)
        await until(lambda: feed.opened == 12)
        assert len(set(controller.peers)) == 1
        channel.close()
        await until(lambda: feed.closed == 12)

    run(story)


def test_a_server_that_dies_ends_its_watches(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()
        watch(channel, ear)
        await until(lambda: feed.opened)
        feed.say(update())
        await until(lambda: ear.messages)
        controller.stop()
        assert (await ear.ended()).code in {codes.UNAVAILABLE, codes.CANCELLED, codes.INTERNAL}
        channel.close()

    run(story)


def test_a_call_waits_for_a_server_that_is_not_there_yet(
    controller: Controller, caplog: pytest.LogCaptureFixture
) -> None:
    controller.on(services.CERTIFY, lambda request, context: identity_pb2.CertifyResponse(leaf_certificate=b"late"))
    controller.stop()

    async def story(ticking: Ticking) -> None:
        channel, ear = channel_to(ticking.reactor, controller.target), Ear()
        certify(channel, ear)
        await until(lambda: caplog.text.count("failed to connect") >= 2)
        assert not ear.replies
        controller.start()
        assert (await ear.replied()).leaf_certificate == b"late"
        channel.close()

    run(story)


def test_a_call_that_waited_too_long_fails() -> None:
    async def story(ticking: Ticking) -> None:
        target = ControlAddr(REFUSING.ip, REFUSING.port, None)
        channel, ear = channel_to(ticking.reactor, target, queue_wait_s=0.1), Ear()
        certify(channel, ear)
        status = await ear.replied()
        assert status == Status(codes.UNAVAILABLE, f"no connection to {target} in 0.1s")
        channel.close()

    run(story)


def test_a_peer_that_speaks_no_http2_is_an_error(controller: Controller) -> None:
    async def story(ticking: Ticking) -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        target = ControlAddr("127.0.0.1", server.sockets[0].getsockname()[1], None)
        channel, ear = channel_to(ticking.reactor, target), Ear()
        certify(channel, ear)
        assert (await ear.replied()).code == codes.UNAVAILABLE
        channel.close()
        server.close()

    run(story)


def test_a_closed_channel_refuses_and_tells_nobody(controller: Controller) -> None:
    feed = controller.feed(services.DESTINATION_GET)

    async def story(ticking: Ticking) -> None:
        channel, before, after = channel_to(ticking.reactor, controller.target), Ear(), Ear()
        watch(channel, before)
        await until(lambda: feed.opened)
        channel.close()
        watch(channel, after)
        assert await after.ended() == Status(codes.UNAVAILABLE, "the channel is closed")
        assert not before.ends

    run(story)


def test_a_channel_leaves_no_connection_behind() -> None:
    async def story(ticking: Ticking) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            addresses = [silent.getsockname(), REFUSING]
            ears = []
            for address in addresses:
                channel, ear = (
                    channel_to(ticking.reactor, ControlAddr(address[0], address[1], None), queue_wait_s=0.05),
                    Ear(),
                )
                certify(channel, ear)
                watch(channel, ear)
                ears.append(ear)
                await asyncio.sleep(0)
                channel.close()
            with silent.accept()[0] as accepted:
                accepted.setblocking(False)
                await until(lambda: b"" in drained(accepted), "the connection is closed")
        assert not any(ear.ends or ear.replies for ear in ears)

    run_counting(story)


def drained(sock: socket.socket) -> list[bytes]:
    """What can be read now; an empty item stands for the end."""
    pieces: list[bytes] = []
    try:
        while not pieces or pieces[-1]:
            pieces.append(sock.recv(65536))
    except BlockingIOError:
        pass
    return pieces
