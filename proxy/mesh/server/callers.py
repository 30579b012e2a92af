"""Decides which clients of the control plane are answered, and refuses messages that cannot be read.

On loopback all clients on this machine are answered. Off loopback only workloads of the mesh are: clients with a
certificate of ours that has not been revoked. Certify and Join, which judge by a token, are for clients that have none yet. A workload may have connected
before it had its certificate: the refusal ends that connection, so that its next one shows it.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc
import grpc.aio

from proxy.api import services
from proxy.mesh.answers.question import INVALID_ARGUMENT, PERMISSION_DENIED, Refusal

_log: Final = logging.getLogger("sponson.mesh")

UNAUTHENTICATED: Final = grpc.StatusCode.UNAUTHENTICATED

FOR_EVERYBODY: Final = frozenset((services.CERTIFY.path, services.JOIN.path))
_LINES_A_SECOND: Final = 10
_SHOWN_CHARACTERS: Final = 300


if TYPE_CHECKING:
    Interceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    Interceptor = grpc.aio.ServerInterceptor


class Caller(NamedTuple):
    ip: str
    """Empty for a connection over the state directory's own socket."""
    identity: str = ""
    """The identity in its certificate; empty if it has none."""
    serial: int = 0
    is_local: bool = False
    """Whether it needs no certificate, because it is on this machine, where the control plane serves in plain text."""


class Stream(NamedTuple):
    """A question that a client follows."""

    caller: Caller
    method: str
    question: str
    """What the question is about, from the request."""
    names: str
    """The workload that the request names as its sender; empty if it names none."""
    since: float
    """Unix seconds."""


_caller: ContextVar[Caller] = ContextVar("caller")


def current_caller() -> Caller:
    """The client whose call is being answered."""
    return _caller.get()


class RefusalLog:
    """Logs each refusal in a line, and those beyond the first few of a second in one line."""

    __slots__ = ("_clock", "_second", "_count")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = -1
        self._count = 0

    def say(self, caller: Caller, method: str, text: str) -> None:
        second = int(self._clock())
        if second != self._second:
            if self._count > _LINES_A_SECOND:
                _log.warning("and %d more refusals", self._count - _LINES_A_SECOND)
            self._second, self._count = second, 0
        self._count += 1
        if self._count <= _LINES_A_SECOND:
            who = f"{shown(caller.identity)} at {caller.ip}" if caller.identity else caller.ip or "the local socket"
            _log.warning("refused %s to %s: %s", method.rpartition("/")[2], who, shown(text))


class Callers(Interceptor):
    """Judges each call before its service gets it."""

    def __init__(self, refusals: RefusalLog, why_not: Callable[[Caller], str]) -> None:
        """`why_not` returns why a caller with a certificate is refused; empty if it is answered."""
        self._refusals: Final = refusals
        self._why_not = why_not
        self._behind: dict[str, Caller] = {}
        self._end: dict[str, Callable[[], None]] = {}
        self._guarded: dict[str, Any] = {}
        self._streams: dict[object, tuple[Caller, str, Any, float]] = {}

    def admit(self, name: str, caller: Caller, end: Callable[[], None]) -> None:
        """Admit a connection from off loopback; `name` is that of its socket toward grpcio, `end` ends it soon."""
        self._behind[name] = caller
        self._end[name] = end

    def forget(self, name: str) -> None:
        self._behind.pop(name, None)
        self._end.pop(name, None)

    def streams(self) -> list[Stream]:
        """The open streams, oldest first. Threads may call this: the copy is made in one step."""
        streams = list(self._streams.values())
        return [Stream(caller, method, *_about(request), since) for caller, method, request, since in streams]

    def of(self, peer: str) -> Caller:
        """The caller whose peer name in grpcio is this."""
        kind, _, rest = peer.partition(":")
        if kind == "unix-abstract":
            return self._behind.get(rest, Caller(""))
        if kind == "unix":
            return Caller("", is_local=True)
        return Caller(rest.rpartition(":")[0].replace("%5B", "").replace("%5D", ""), is_local=True)

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        method = details.method
        found = self._guarded.get(method)
        if found is None:
            handler = await continuation(details)
            if handler is None:
                return None
            found = self._guarded[method] = self._guard(method, handler)
        return found

    def _guard(self, method: str, handler: Any) -> Any:
        """A handler that gets a call only if its caller may make it, and a message only if it can be read."""
        read: Callable[[bytes], Any] = handler.request_deserializer
        if handler.unary_unary is not None:
            call: Callable[[Any, Any], Awaitable[Any]] = handler.unary_unary

            async def answer(raw: bytes, context: Any) -> Any:
                return await call(await self._judge(method, read, raw, context), context)

            return grpc.unary_unary_rpc_method_handler(answer, None, handler.response_serializer)
        if handler.stream_stream is not None:
            talk = handler.stream_stream

            async def converse(requests: Any, context: Any) -> AsyncIterator[Any]:
                await self._admit(method, context)
                async for message in talk(requests, context):
                    yield message

            return grpc.stream_stream_rpc_method_handler(
                converse, handler.request_deserializer, handler.response_serializer
            )
        if handler.unary_stream is None:
            return None
        follow = handler.unary_stream
        if inspect.isasyncgenfunction(follow):

            async def stream(raw: bytes, context: Any) -> AsyncIterator[Any]:
                request = await self._judge(method, read, raw, context)
                self._streams[context] = (_caller.get(), method, request, time.time())
                try:
                    async for message in follow(request, context):
                        yield message
                finally:
                    del self._streams[context]

            return grpc.unary_stream_rpc_method_handler(stream, None, handler.response_serializer)

        async def write(raw: bytes, context: Any) -> None:
            request = await self._judge(method, read, raw, context)
            self._streams[context] = (_caller.get(), method, request, time.time())
            try:
                await follow(request, context)
            finally:
                del self._streams[context]

        return grpc.unary_stream_rpc_method_handler(write, None, handler.response_serializer)

    async def _judge(self, method: str, read: Callable[[bytes], Any], raw: bytes, context: Any) -> Any:
        """The message, if its sender may send it; ends the call otherwise."""
        return await self._admit(method, context, lambda: _message(read, raw))

    async def _admit(self, method: str, context: Any, then: Callable[[], Any] = lambda: None) -> Any:
        """Continue with `then` if the caller may call; ends the call otherwise."""
        peer = context.peer()
        caller = self.of(peer)
        _caller.set(caller)
        try:
            self._check(method, caller)
            return then()
        except Refusal as refusal:
            self._tell(peer, caller, method, refusal)
            await context.abort(refusal.code, refusal.text)
            raise

    def _tell(self, peer: str, caller: Caller, method: str, refusal: Refusal) -> None:
        """Log the refusal, and end a connection without a certificate, so that its further calls do not fill the log."""
        if refusal.code is UNAUTHENTICATED:
            end = self._end.pop(peer.partition(":")[2], None)
            if end is None:
                return
            end()
        self._refusals.say(caller, method, refusal.text)

    def _check(self, method: str, caller: Caller) -> None:
        if caller.is_local or method in FOR_EVERYBODY:
            return
        if not caller.identity:
            raise Refusal(UNAUTHENTICATED, "only workloads of the mesh are answered: show a certificate of its CA")
        why_not = self._why_not(caller)
        if why_not:
            raise Refusal(PERMISSION_DENIED, why_not)


def _message(read: Callable[[bytes], Any], raw: bytes) -> Any:
    try:
        return read(raw)
    except Exception as error:
        raise Refusal(INVALID_ARGUMENT, f"the message cannot be read: {error}") from None


def _about(request: Any) -> tuple[str, str]:
    """What a request asks for, and the workload that it names as its sender, whatever its message type."""
    workload = getattr(request, "source_workload", "") or getattr(request, "workload", "")
    context = getattr(request, "context_token", "") or workload
    if hasattr(request, "path"):
        return request.path, context
    if hasattr(request, "authority"):
        address = request.addr
        text = request.authority or f"{_ip(address.ip)}:{address.port}"
        return text, context
    return f"port {request.port}" if hasattr(request, "port") else "", context


def _ip(message: Any) -> str:
    ipv4 = message.ipv4
    return str(ip_address(ipv4)) if ipv4 else str(IPv6Address(message.ipv6.first << 64 | message.ipv6.last))


def shown(text: str) -> str:
    """The text for a log line: control characters are escaped, and its length is limited."""
    plain = text if text.isprintable() else text.encode("unicode_escape").decode()
    return plain if len(plain) <= _SHOWN_CHARACTERS else f"{plain[:_SHOWN_CHARACTERS]}..."
