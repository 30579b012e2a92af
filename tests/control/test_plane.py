"""The whole control client, configured from a workload's environment, against one controller that plays all three
services.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proxy.api import destination_pb2, identity_pb2, inbound_pb2, outbound_pb2, services
from proxy.balance.endpoints import KNOWN
from proxy.config import Config, parse
from proxy.control.plane import ControlPlane
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.metrics.registry import Registry
from proxy.metrics.scraped.balancers import Balancers
from proxy.policy import client, server
from proxy.policy.defaults import default_policy
from proxy.policy.profiles.profile import Profile
from proxy.tls.certificate.csr import KeyAndCsr, make_key_and_csr
from proxy.tls.credentials import Credentials
from tests.control.controller import Controller, run
from tests.control.recording import first
from tests.kit.certificates import issue, the_ca
from tests.kit.environment import NAME, environment
from tests.kit.sockets import Ticking, until


def config_for(controller: Controller, token_file: Path, **changes: str | None) -> Config:
    token_file.write_text("a token")
    ours: dict[str, str | None] = {
        "DESTINATION_SVC_ADDR": f"localhost.:{controller.port}",
        "POLICY_SVC_ADDR": f"127.0.0.1:{controller.port}",
        "IDENTITY_SVC_ADDR": f"127.0.0.1:{controller.port}",
        "IDENTITY_TRUST_ANCHORS": the_ca().pem,
        "IDENTITY_TOKEN_FILE": str(token_file),
        "DESTINATION_CONTEXT": "the context",
    }
    return parse(environment(**(ours | changes)))


def certifies(controller: Controller, key_and_csr: KeyAndCsr) -> None:
    key = serialization.load_der_private_key(key_and_csr.key_der, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)

    def answer(request: Any, context: Any) -> Any:
        response = identity_pb2.CertifyResponse(leaf_certificate=issue(the_ca(), NAME, key=key).certificate_der)
        response.valid_until.FromSeconds(int(time.time()) + 3600)
        return response

    controller.on(services.CERTIFY, answer)


def test_everything_that_a_sidecar_asks(controller: Controller, tmp_path: Path) -> None:
    key_and_csr = make_key_and_csr(NAME)
    certifies(controller, key_and_csr)
    endpoints = controller.feed(services.DESTINATION_GET)
    profiles = controller.feed(services.GET_PROFILE)
    outbound = controller.feed(services.OUTBOUND_WATCH)
    inbound = controller.feed(services.INBOUND_WATCH_PORT)
    config = config_for(controller, tmp_path / "token")
    credentials = Credentials(config.identity_server_name, config.identity_trust_anchors)
    scopes: list[tuple[str, ControlAddr]] = []

    async def story(ticking: Ticking) -> None:
        registry = Registry(ticking.reactor.clock)
        plane = ControlPlane(
            ticking.reactor,
            config,
            credentials,
            key_and_csr,
            lambda name, target: scopes.append((name, target)),
            Balancers(registry).show_client,
        )
        plane.identity.start()
        await until(lambda: credentials.is_ready.value)
        page = registry.render().decode()
        for kind, svc in (("destination", config.destination_svc), ("policy", config.policy_svc)):
            labels = f'{{addr="{svc.authority}"}}'
            assert f"control_{kind}_balancer_queue_gate_timeout_seconds{labels} 30.0\n" in page
        assert config.identity_svc is not None
        labels = f'{{addr="{config.identity_svc.authority}"}}'
        assert f"control_identity_balancer_queue_requests_total{labels} 1\n" in page

        bench = plane.destinations.endpoints("bench.bench.svc.cluster.local:80")
        await until(lambda: endpoints.opened)
        assert endpoints.requests[0].context_token == "the context"
        endpoints.say(first("destination.Get", "bench.bench.svc.cluster.local:80", destination_pb2.Update()))
        await until(lambda: bench.value.state == KNOWN)
        assert len(bench.value.endpoints) == 3

        profile = plane.destinations.profile("10.43.0.31:80")
        await until(lambda: profiles.opened)
        profiles.say(destination_pb2.DestinationProfile(opaque_protocol=True))
        await until(lambda: profile.value == Profile(is_opaque=True))

        policy = plane.outbound_policies.watch(Addr("10.43.0.31", 80))
        await until(lambda: outbound.opened)
        assert outbound.requests[0].source_workload == config.policy_workload
        outbound.say(first("outbound.Watch", "10.43.0.31:80", outbound_pb2.OutboundPolicy()))
        await until(lambda: isinstance(policy.value, client.ClientPolicy))

        port = plane.inbound_policies.watch(8080, default_policy("deny", (), 10.0))
        await until(lambda: inbound.opened)
        inbound.say(first("inbound.WatchPort", "bench/bench-0:8080", inbound_pb2.Server()))
        await until(lambda: port.value.protocol == server.DETECT)

        assert {name for name, _ in scopes} == {"destination", "policy", "identity"}
        plane.close()
        plane.close()
        await until(lambda: all(feed.closed == 1 for feed in (endpoints, profiles, outbound, inbound)))

    run(story)


def test_a_controller_on_loopback_that_says_nothing_is_asked_again(controller: Controller, tmp_path: Path) -> None:
    """Row B45: the time limits of control streams did not apply on loopback, so a controller that hung was waited for
    without end.
    """
    profiles = controller.feed(services.GET_PROFILE)
    key_and_csr = make_key_and_csr(NAME)
    config = config_for(controller, tmp_path / "token", CONTROL_STREAM_INITIAL_TIMEOUT="100ms")
    credentials = Credentials(config.identity_server_name, config.identity_trust_anchors)

    async def story(ticking: Ticking) -> None:
        plane = ControlPlane(ticking.reactor, config, credentials, key_and_csr, None)
        profile = plane.destinations.profile("10.43.0.31:80")
        await until(lambda: profiles.opened >= 2 and profiles.closed >= 1)
        profiles.say(destination_pb2.DestinationProfile(opaque_protocol=True))
        await until(lambda: profile.value == Profile(is_opaque=True))
        plane.close()
        await until(lambda: profiles.closed == profiles.opened)

    run(story)


def test_spire_is_refused_by_name(controller: Controller, tmp_path: Path) -> None:
    config = config_for(
        controller,
        tmp_path / "token",
        IDENTITY_SPIRE_WORKLOAD_API_ADDRESS="unix:/run/spire.sock",
        IDENTITY_LOCAL_NAME=None,
        IDENTITY_SERVER_ID="spiffe://root/web",
        IDENTITY_SERVER_NAME=NAME,
        IDENTITY_SVC_ADDR=None,
    )
    credentials = Credentials(config.identity_server_name, config.identity_trust_anchors, config.identity_server_id)

    async def story(ticking: Ticking) -> None:
        with pytest.raises(ValueError, match="SPIRE is not supported"):
            ControlPlane(ticking.reactor, config, credentials, make_key_and_csr(NAME))

    run(story)
