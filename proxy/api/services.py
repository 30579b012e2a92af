"""Every method of the wire interface as data, for our clients and for servers.

The only place that spells a method's path. Serializing is the message
type's own: `method.request.FromString`, `message.SerializeToString()`.
"""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from proxy.api import destination_pb2, identity_pb2, inbound_pb2, join_pb2, outbound_pb2, tap_pb2

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class Method(NamedTuple, Generic[Q, A]):
    path: str
    """`/package.Service/Method`."""
    request: type[Q]
    response: type[A]
    is_stream: bool
    """The server answers with any number of messages; no method takes a stream of requests."""


_PACKAGE: Final = "/io.linkerd.proxy."

DESTINATION_GET: Final = Method(
    _PACKAGE + "destination.Destination/Get", destination_pb2.GetDestination, destination_pb2.Update, True
)
GET_PROFILE: Final = Method(
    _PACKAGE + "destination.Destination/GetProfile",
    destination_pb2.GetDestination,
    destination_pb2.DestinationProfile,
    True,
)
CERTIFY: Final = Method(
    _PACKAGE + "identity.Identity/Certify", identity_pb2.CertifyRequest, identity_pb2.CertifyResponse, False
)
INBOUND_GET_PORT: Final = Method(
    _PACKAGE + "inbound.InboundServerPolicies/GetPort", inbound_pb2.PortSpec, inbound_pb2.Server, False
)
INBOUND_WATCH_PORT: Final = Method(
    _PACKAGE + "inbound.InboundServerPolicies/WatchPort", inbound_pb2.PortSpec, inbound_pb2.Server, True
)
OUTBOUND_GET: Final = Method(
    _PACKAGE + "outbound.OutboundPolicies/Get", outbound_pb2.TrafficSpec, outbound_pb2.OutboundPolicy, False
)
OUTBOUND_WATCH: Final = Method(
    _PACKAGE + "outbound.OutboundPolicies/Watch", outbound_pb2.TrafficSpec, outbound_pb2.OutboundPolicy, True
)
TAP_OBSERVE: Final = Method(_PACKAGE + "tap.Tap/Observe", tap_pb2.ObserveRequest, tap_pb2.TapEvent, True)

JOIN: Final = Method("/io.sponson.join.Join/Join", join_pb2.JoinRequest, join_pb2.JoinResponse, False)
"""The Join service of our own control plane. It is not part of Linkerd's interface, and so not among METHODS."""

METHODS: Final[tuple[Method[Message, Message], ...]] = (
    DESTINATION_GET,
    GET_PROFILE,
    CERTIFY,
    INBOUND_GET_PORT,
    INBOUND_WATCH_PORT,
    OUTBOUND_GET,
    OUTBOUND_WATCH,
    TAP_OBSERVE,
)
