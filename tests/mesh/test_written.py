"""A proxy reads what the control plane writes: its own reader is applied to anything that manifests can express."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.api import destination_pb2 as pb
from proxy.control.convert.endpoint import endpoint_of
from proxy.control.convert.profile import profile_of
from proxy.core.address.addr import Addr, addr
from proxy.mesh.answers.endpoint import weighted_message
from proxy.mesh.answers.routes import override_message, route_message
from proxy.mesh.kinds.services.service_profile import Condition, ProfileRoute, ResponseClass
from proxy.policy.endpoint import HINT_H2, HINT_NONE, HINT_OPAQUE, EndpointMeta, Http2Params, TlsIdentity

NAMES = st.from_regex(r"[a-z]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z]([a-z0-9-]{0,8}[a-z0-9])?){0,3}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ADDRESSES = st.builds(
    lambda ip, port: addr(str(ip), port), st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)), st.integers(1, 65535)
)
IDENTITIES = st.one_of(
    st.builds(TlsIdentity, NAMES, NAMES),
    st.builds(lambda name, sni: TlsIdentity(f"spiffe://{name}/a", sni), NAMES, NAMES),
)


@st.composite
def metas(draw: Any) -> EndpointMeta:
    labels = draw(st.dictionaries(TEXTS.filter(lambda text: text != "zone_locality"), TEXTS, max_size=4))
    locality = draw(st.sampled_from(["local", "remote", "unknown", ""]))
    if locality:
        labels["zone_locality"] = locality
    return EndpointMeta(
        labels=tuple(sorted(labels.items())),
        tls=draw(st.none() | IDENTITIES),
        hint=draw(st.sampled_from([HINT_NONE, HINT_H2, HINT_OPAQUE])),
        opaque_transport_port=draw(st.integers(0, 65534)),
        weight=draw(st.integers(0, 1 << 31)),
        http2=draw(st.sampled_from([Http2Params(), Http2Params(keep_alive_interval_s=0.5, keep_alive_timeout_s=3.0)])),
        zone_locality=locality if locality in ("local", "remote") else "",
    )


@settings(deadline=None)
@given(ADDRESSES, metas())
def test_an_endpoint_is_read_as_it_was_written(address: Addr, meta: EndpointMeta) -> None:
    message = weighted_message(address, meta)
    assert endpoint_of(pb.WeightedAddr.FromString(message.SerializeToString()), {}) == (address, meta)


STATUSES = st.tuples(st.sampled_from([0, 100, 404, 500]), st.sampled_from([0, 500, 599]))
REQUESTS: st.SearchStrategy[Condition] = st.recursive(
    st.one_of(
        st.builds(lambda path: Condition(path_regex=path), TEXTS.filter(bool)),
        st.builds(lambda method: Condition(method=method), st.sampled_from(["GET", "POST", "TRACE", "PURGE"])),
    ),
    lambda inner: st.one_of(
        st.builds(lambda all_: Condition(all=tuple(all_)), st.lists(inner, max_size=3)),
        st.builds(lambda any_: Condition(any=tuple(any_)), st.lists(inner, max_size=3)),
        st.builds(lambda one: Condition(negated=one), inner),
    ),
    max_leaves=6,
)
RESPONSES: st.SearchStrategy[Condition] = st.recursive(
    st.builds(lambda statuses: Condition(statuses=statuses), STATUSES),
    lambda inner: st.one_of(
        st.builds(lambda all_: Condition(all=tuple(all_)), st.lists(inner, max_size=3)),
        st.builds(lambda one: Condition(negated=one), inner),
    ),
    max_leaves=4,
)
ROUTES = st.builds(
    ProfileRoute,
    TEXTS.filter(bool),
    REQUESTS,
    st.lists(st.builds(ResponseClass, RESPONSES, st.booleans()), max_size=2).map(tuple),
    st.booleans(),
    st.integers(0, 10_000_000).map(lambda millis: millis / 1000),
)


def read_request(message: pb.RequestMatch) -> Condition:
    """The inverse of what is written, by the meanings in the .proto file alone."""
    kind = message.WhichOneof("match")
    if kind == "all":
        return Condition(all=tuple(map(read_request, message.all.matches)))
    if kind == "any":
        return Condition(any=tuple(map(read_request, message.any.matches)))
    if kind == "not":
        return Condition(negated=read_request(getattr(message, "not")))
    if kind == "path":
        return Condition(path_regex=message.path.regex)
    method = message.method
    if method.WhichOneof("type") == "unregistered":
        return Condition(method=method.unregistered)
    return Condition(method=type(method).Registered.Name(method.registered))


def read_response(message: pb.ResponseMatch) -> Condition:
    kind = message.WhichOneof("match")
    if kind == "all":
        return Condition(all=tuple(read_response(one) for one in message.all.matches))
    if kind == "not":
        return Condition(negated=read_response(getattr(message, "not")))
    return Condition(statuses=(message.status.min, message.status.max))


@settings(deadline=None)
@given(ROUTES)
def test_a_profiles_route_is_read_as_it_was_written(route: ProfileRoute) -> None:
    message = pb.Route.FromString(route_message(route).SerializeToString())
    assert read_request(message.condition) == route.condition
    assert message.metrics_labels == {"route": route.name} and message.is_retryable == route.is_retryable
    assert message.timeout.ToTimedelta().total_seconds() == route.timeout_s
    classes = [(read_response(one.condition), one.is_failure) for one in message.response_classes]
    assert classes == [(one.condition, one.is_failure) for one in route.response_classes]


@settings(deadline=None)
@given(st.lists(st.tuples(NAMES, st.integers(1, 1 << 20)), max_size=4), st.integers(1, 65535))
def test_overrides_are_read_as_they_were_written(overrides: list[tuple[str, int]], port: int) -> None:
    message = pb.DestinationProfile(dst_overrides=[override_message(name, weight, port) for name, weight in overrides])
    read = profile_of(pb.DestinationProfile.FromString(message.SerializeToString()), f"web:{port}").overrides
    assert list(read) == [(f"{name}:{port}", weight) for name, weight in overrides]
