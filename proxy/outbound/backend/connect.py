"""Dialler: how one endpoint is reached (docs/linkerd/outbound.md, section 9.5).

Everything but the TLS context is decided when the endpoint is built:
address, identity, transport header, labels. An endpoint with an identity is
reached over TLS or not at all; an address that may not be dialled fails like a
refused connect, never inside the call.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from proxy.core.address.addr import Addr, port_number
from proxy.core.codec import Codec, Wire
from proxy.core.connection.dial import DialOptions, Progress
from proxy.core.failure.reason import Reason
from proxy.core.loop.step_queue import Steps
from proxy.outbound import labels
from proxy.outbound.runtime import Runtime
from proxy.policy.endpoint import HINT_NONE, HINT_OPAQUE, EndpointMeta
from proxy.tls.handshake import dial_tls
from proxy.tls.peer import TlsTarget
from proxy.transport.detection.header import TransportHeader, encode
from proxy.transport.plain import dial_plain

_log: Final = logging.getLogger(__name__)

MakeCodec = Callable[[Wire], Codec]
SessionProtocol = Literal["", "http/1", "http/2"]
"""The session protocol in the transport header; empty for opaque bytes."""


def as_reached(runtime: Runtime, addr: Addr, meta: EndpointMeta) -> EndpointMeta:
    """The metadata as it applies: an endpoint of this workload itself has neither TLS nor a proxy in front of it."""
    if not runtime.is_local(addr):
        return meta
    return replace(meta, tls=None, hint=HINT_NONE, opaque_transport_port=0, authority_override="")


class Dialler:
    """One endpoint of one kind of traffic; `dial` makes one connection."""

    __slots__ = ("labels", "_runtime", "_key", "_addr", "_meta", "_refusal", "_options", "_offers_header")

    def __init__(
        self, runtime: Runtime, addr: Addr, meta: EndpointMeta, authority: str, session: SessionProtocol
    ) -> None:
        """`meta` as reached; `authority` is the backend's name, empty for a forward."""
        config = runtime.config
        self._runtime = runtime
        self._meta = meta
        has_override = bool(meta.tls and meta.opaque_transport_port)
        self._addr = Addr(addr.ip, meta.opaque_transport_port) if has_override else addr
        self._key = str(addr)
        self._refusal = runtime.refuses(self._addr)
        self._offers_header = bool(meta.tls and (meta.opaque_transport_port or meta.authority_override))
        self.labels: Final = labels.endpoint(addr, meta, authority, runtime.is_local(addr))
        """The labels of the metrics of its requests and of its connections."""
        tcp = (("direction", "outbound"), ("peer", "dst"), *self.labels)
        self._options = DialOptions(
            connect_timeout_s=config.outbound_connect_timeout_s,
            keepalive_s=config.outbound_connect_keepalive_s,
            user_timeout_s=config.outbound_connect_user_timeout_s,
            meter=runtime.registry.meter(tcp),
            first_bytes=encode(_header(addr, meta, session)) if self._offers_header else b"",
            on_connected=lambda: runtime.troubles.succeeded(self._key),
            on_failed=self._failed,
            made=runtime.here.outgoing,
            progress=Progress(),
        )

    def dial(self, make_codec: MakeCodec, on_connected: Callable[[], None] | None = None) -> Codec:
        """Returns the codec, which may write at once; on a failure its `lost` is called, never within this call."""
        reactor = self._runtime.reactor
        if self._refusal:
            self._runtime.registry.faults("outbound").count_as("refused_address")
            self._failed(self._refusal)
            return _Refused(reactor.flusher.mark, make_codec).codec
        options = (
            self._options if on_connected is None else self._options._replace(on_connected=self._then(on_connected))
        )
        identity = self._meta.tls
        if identity is None:
            return dial_plain(reactor, self._addr, make_codec, options)
        credentials = self._runtime.credentials
        context = credentials.client_context(self._offers_header)
        target = TlsTarget(context, identity.server_name, identity.server_id, credentials.revoked)
        return dial_tls(reactor, self._addr, target, make_codec, options)

    def _failed(self, text: str) -> None:
        _log.info("Failed to connect to %s: %s", self._addr, text)
        self._runtime.troubles.failed(self._key, text)

    def _then(self, on_connected: Callable[[], None]) -> Callable[[], None]:
        def connected() -> None:
            self._runtime.troubles.succeeded(self._key)
            on_connected()

        return connected


def _header(addr: Addr, meta: EndpointMeta, session: SessionProtocol) -> TransportHeader:
    if meta.hint == HINT_OPAQUE:
        session = ""
    name, colon, port = meta.authority_override.rpartition(":")
    number = port_number(port)
    if colon and number is not None:
        return TransportHeader(number, name, session)
    return TransportHeader(addr.port, "", session)


class _Refused(Wire):
    """A wire to nowhere: its codec's `lost` is called with a failed connect at the end of this loop iteration."""

    __slots__ = ("codec", "_is_told")

    def __init__(self, mark: Callable[[_Refused], None], make_codec: MakeCodec) -> None:
        self._is_told = False
        self.codec = make_codec(self)
        mark(self)

    def flush(self) -> None:
        if not self._is_told:
            self._is_told = True
            self.codec.lost(Reason.CONNECT_FAILED)

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def end(self) -> None: ...

    def abort(self, reason: Reason) -> None: ...

    def is_stale(self) -> bool:
        return True

    def schedule(self, target: Steps) -> None:
        """Nothing is ever read here, so the rest of the codec's work may be done at once."""
        target.step()

    def hand_over(self, codec: Codec) -> None:
        self.codec = codec
