"""One call to a control plane that may be on another machine, as a sidecar makes it: plain on loopback, else mesh TLS."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from google.protobuf.message import Message

from proxy.api import join_pb2
from proxy.api.services import JOIN, Method
from proxy.control.rpc.channel import Channel
from proxy.control.rpc.dial import dial_to
from proxy.control.rpc.resolve import Names
from proxy.control.rpc.settings import ChannelSettings
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.backoff import Backoff
from proxy.core.loop.flusher import Flusher
from proxy.core.loop.reactor import Reactor
from proxy.core.loop.timers import Wheel
from proxy.http.grpc import Status
from proxy.mesh.model import SERVER_IDENTITY
from proxy.tls.credentials import Credentials, CredentialsError

_TICK_S: Final = 0.05
_TIMEOUT_S: Final = 15.0
_BACKOFF: Final = Backoff(0.2, 2.0, 0.1)

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class JoinError(Exception):
    """The control plane cannot be reached, or refuses; the text says which and why."""


def join(server: Addr, trust_anchors: str, token: bytes, ttl_s: int = 0) -> join_pb2.JoinResponse:
    """Exchange a token; JoinError if that fails."""
    request = join_pb2.JoinRequest(token=token, ttl_s=ttl_s)
    return asyncio.run(_call(server, trust_anchors, JOIN, request))


async def _call(server: Addr, trust_anchors: str, method: Method[Q, A], request: Q) -> A:
    loop = asyncio.get_running_loop()
    reactor = Reactor(loop, Flusher(loop.call_soon), Wheel(_TICK_S, loop.time()), loop.time)
    target = ControlAddr(server.ip, server.port, SERVER_IDENTITY)
    try:
        credentials = Credentials("joining.local", trust_anchors)
    except CredentialsError as error:
        raise JoinError(f"trust anchors: {error}") from None
    settings = ChannelSettings("join", target, _BACKOFF, queue_wait_s=_TIMEOUT_S)
    channel = Channel(reactor, settings, dial_to(reactor, target, credentials), Names(loop))
    reply: asyncio.Future[A | Status] = loop.create_future()
    channel.call(method, request, lambda found: None if reply.done() else reply.set_result(found))
    turning = loop.create_task(_turn(reactor))
    try:
        found = await asyncio.wait_for(reply, _TIMEOUT_S)
    except TimeoutError:
        raise JoinError(f"the control plane at {server} does not answer within {_TIMEOUT_S:.0f} s") from None
    finally:
        turning.cancel()
        channel.close()
    if isinstance(found, Status):
        raise JoinError(f"the control plane at {server}: {found}")
    return found


async def _turn(reactor: Reactor) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        reactor.wheel.advance(reactor.clock())
