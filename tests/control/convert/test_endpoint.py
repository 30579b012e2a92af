"""WeightedAddr to an endpoint, and DestinationProfile to a profile: recorded messages, then single fields."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from proxy.api import destination_pb2
from proxy.control.convert.endpoint import addresses_of, endpoint_of, endpoints_of
from proxy.control.convert.fields import InvalidMessageError
from proxy.control.convert.profile import profile_of
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.policy.endpoint import EndpointMeta, Http2Params, TlsIdentity
from proxy.policy.profiles.profile import Profile
from tests.control.recording import RECORDING, answered, first, parsed

ADDR = {"ip": {"ipv4": 0x0A000001}, "port": 8080}


def endpoint(**fields: Any) -> EndpointMeta:
    message = ParseDict({"addr": ADDR, **fields}, destination_pb2.WeightedAddr())
    address, meta = endpoint_of(message, {})
    assert address == Addr("10.0.0.1", 8080)
    return meta


def http2(**fields: Any) -> Http2Params:
    return endpoint(http2=fields).http2


# ---- as Linkerd's destination controller sends them


@pytest.mark.parametrize("question", answered("destination.Get"))
def test_every_recorded_set_converts(question: str) -> None:
    message = first("destination.Get", question, destination_pb2.Update())
    assert len(endpoints_of(message.add)) == len(message.add.addrs) > 0


def test_the_recorded_endpoint_of_a_meshed_pod() -> None:
    message = first("destination.Get", "web-svc.emojivoto.svc.cluster.local:80", destination_pb2.Update())
    name = "web.emojivoto.serviceaccount.identity.linkerd.cluster.local"
    assert endpoints_of(message.add) == {
        Addr("10.42.0.11", 8080): EndpointMeta(
            labels=(
                ("control_plane_ns", "linkerd"),
                ("deployment", "web"),
                ("namespace", "emojivoto"),
                ("pod", "web-0"),
                ("service", "web-svc"),
                ("serviceaccount", "web"),
                ("zone", "zone-a"),
                ("zone_locality", "local"),
            ),
            tls=TlsIdentity(name, name),
            hint="h2",
            weight=10000,
            zone_locality="local",
        )
    }


def test_the_recorded_endpoint_of_a_pod_outside_the_mesh() -> None:
    message = first("destination.Get", "legacy-svc.emojivoto.svc.cluster.local:80", destination_pb2.Update())
    [meta] = endpoints_of(message.add).values()
    assert meta.tls is None
    assert meta.hint == ""


def test_the_recorded_removal() -> None:
    [change] = RECORDING["changes"]["endpoint bench-2 not ready"]["Get bench.bench:80"]
    message = parsed(change, destination_pb2.Update())
    assert addresses_of(message.remove) == [Addr("10.42.0.33", 8080)]


# ---- parts


@pytest.mark.acceptance("RES-01")
def test_identities() -> None:
    dns = {"dns_like_identity": {"name": "system.local"}}
    uri = {"uri_like_identity": {"uri": "spiffe://root/"}}
    other = {"server_name": {"name": "other.local"}}
    assert endpoint(tls_identity=dns).tls == TlsIdentity("system.local", "system.local")
    assert endpoint(tls_identity={**dns, "server_name": {"name": "system.local"}}).tls == TlsIdentity(
        "system.local", "system.local"
    )
    assert endpoint(tls_identity={**dns, **other}).tls == TlsIdentity("system.local", "other.local")
    assert endpoint(tls_identity={**uri, **other}).tls == TlsIdentity("spiffe://root/", "other.local")
    assert endpoint(tls_identity=uri).tls is None
    assert endpoint(tls_identity={}).tls is None
    assert endpoint(tls_identity={"dns_like_identity": {"name": "not a name"}}).tls is None
    assert endpoint(tls_identity={**dns, "server_name": {"name": ""}}).tls is None
    assert endpoint(tls_identity={"uri_like_identity": {"uri": "no uri"}, **other}).tls is None


@pytest.mark.acceptance("RES-02")
def test_http2_parameters() -> None:
    both = {"initial_connection_window_size": 200, "initial_stream_window_size": 100}
    assert http2(flow_control={**both, "adaptive_flow_control": True}) == Http2Params(is_adaptive=True)
    assert http2(flow_control=both) == Http2Params(100, 200)
    assert http2(flow_control={"initial_stream_window_size": 100}) == Http2Params()
    assert http2(flow_control={"initial_connection_window_size": 100}) == Http2Params()
    alive = {"interval": "10s", "timeout": "3s", "while_idle": True}
    assert http2(keep_alive=alive) == Http2Params(
        keep_alive_interval_s=10.0, keep_alive_timeout_s=3.0, keeps_alive_while_idle=True
    )
    assert http2(keep_alive={"interval": "10s", "while_idle": True}) == Http2Params()
    assert http2(keep_alive={"timeout": "10s"}) == Http2Params()
    assert http2(internals={"max_frame_size": 32768}) == Http2Params(max_frame_bytes=32768)
    assert http2(flow_control={}, keep_alive={}, internals={}) == Http2Params() == endpoint().http2


@pytest.mark.acceptance("RES-03")
def test_zone_locality() -> None:
    assert endpoint(metric_labels={"zone_locality": "local"}).zone_locality == "local"
    assert endpoint(metric_labels={"zone_locality": "REMOTE"}).zone_locality == "remote"
    assert endpoint(metric_labels={"zone_locality": "elsewhere"}).zone_locality == ""
    assert endpoint().zone_locality == ""
    of_set = ParseDict(
        {"addrs": [{"addr": ADDR}], "metric_labels": {"zone_locality": "local"}}, destination_pb2.WeightedAddrSet()
    )
    [meta] = endpoints_of(of_set).values()
    assert meta.zone_locality == "", "only the address's own label counts"
    assert meta.labels == (("zone_locality", "local"),)


def test_hints() -> None:
    assert endpoint(protocol_hint={"h2": {}}).hint == "h2"
    assert endpoint(protocol_hint={"opaque": {}, "opaque_transport": {"inbound_port": 4143}}) == EndpointMeta(
        hint="opaque", opaque_transport_port=4143, weight=0
    )
    for port in (0, 65535, 70000):
        assert endpoint(protocol_hint={"opaque_transport": {"inbound_port": port}}).opaque_transport_port == 0


def test_authority_overrides() -> None:
    for authority in ("web.ns.svc.cluster.local:8080", "web", "[fd00::1]:80", "[fd00::1]"):
        assert endpoint(authority_override={"authority_override": authority}).authority_override == authority
    for authority in ("", "a/b", "web:70000", ":80", "a b", "web:x", "web:" + "1" * 10_000):
        assert endpoint(authority_override={"authority_override": authority}).authority_override == ""


def test_labels_of_an_address_win_over_its_sets_and_the_last_of_two_addresses_wins() -> None:
    message = ParseDict(
        {
            "metric_labels": {"a": "set", "b": "set"},
            "addrs": [{"addr": ADDR}, {"addr": ADDR, "metric_labels": {"a": "own"}}, {"weight": 3}, {"addr": {}}],
        },
        destination_pb2.WeightedAddrSet(),
    )
    assert endpoints_of(message) == {
        Addr("10.0.0.1", 8080): EndpointMeta(labels=(("a", "own"), ("b", "set")), weight=0)
    }


def test_an_endpoint_needs_an_address() -> None:
    broken_ones: list[dict[str, Any]] = [{}, {"addr": {}}, {"addr": {"ip": {}}}, {"addr": {**ADDR, "port": 70000}}]
    for broken in broken_ones:
        with pytest.raises(InvalidMessageError):
            endpoint_of(ParseDict(broken, destination_pb2.WeightedAddr()), {})
    message = ParseDict({"addrs": [{}, ADDR]}, destination_pb2.AddrSet())
    assert addresses_of(message) == [Addr("10.0.0.1", 8080)]


# ---- profiles


def test_the_recorded_profiles() -> None:
    def recorded(question: str) -> Profile:
        return profile_of(first("destination.GetProfile", question, destination_pb2.DestinationProfile()), question)

    web = recorded("10.43.0.11:80")
    assert web.name == "web-svc.emojivoto.svc.cluster.local:80" and web.routes
    assert recorded("10.43.0.11:81") == Profile()
    redis = recorded("10.43.0.15:6379")
    assert redis.name == "redis-svc.emojivoto.svc.cluster.local:6379" and redis.is_opaque and not redis.routes
    pod = recorded("10.42.0.11:8080")
    assert pod.name == ""
    assert pod.endpoint is not None
    address, meta = pod.endpoint
    assert address == Addr("10.42.0.11", 8080)
    assert meta.tls is not None
    outside = recorded("1.2.3.4:443")
    assert outside.endpoint is not None
    assert outside.endpoint[0] == Addr("1.2.3.4", 443)
    assert outside.endpoint[1].tls is None


def test_the_parts_of_a_profile_that_will_not_do_are_left_out() -> None:
    message = ParseDict(
        {
            "fully_qualified_name": "not a name",
            "endpoint": {},
            "routes": [{}, {"condition": {}}],
            "dst_overrides": [
                {"authority": "a.ns.svc.cluster.local:80", "weight": 3},
                {"authority": "b.ns.svc.cluster.local:80"},
                {"authority": "c", "weight": 1},
            ],
        },
        destination_pb2.DestinationProfile(),
    )
    assert profile_of(message, "[fd00::1]:80") == Profile(overrides=(("a.ns.svc.cluster.local:80", 3),))


def test_labels_are_bounded_in_number_and_length() -> None:
    """Each is part of every series of each endpoint: ten thousand labels of a set would stand ten thousand times."""
    message = destination_pb2.WeightedAddrSet()
    message.metric_labels.update({f"set-{number:05}": "x" for number in range(10_000)})
    one = message.addrs.add()
    one.addr.ip.ipv4 = 1
    one.metric_labels.update({"a": "own", "b": "x" * 2000, "c" * 300: "x"})
    (meta,) = endpoints_of(message).values()
    assert len(meta.labels) == limits.MESSAGE_LABELS
    assert meta.labels[:2] == (("a", "own"), ("set-00000", "x"))
