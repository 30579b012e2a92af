"""A policy of hundreds of rules, a profile of hundreds of services: their stages are built, and left again, in shares, and a
request has not to wait for its turn.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.outbound.discovery.discover import SIDECAR, Destination
from proxy.outbound.http.logical import HttpRouter
from proxy.outbound.opaque.logical import OpaqueRouter, route_of_sni
from proxy.policy.client import (
    FIRST_AVAILABLE,
    TLS,
    Backend,
    Balance,
    ClientPolicy,
    ClientRule,
    Distribution,
    RouteBackend,
    StreamRoute,
)
from proxy.policy.distribution import FIRST
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta
from proxy.policy.profiles.profile import Profile
from proxy.policy.routes.route import HostMatch, HttpMatch, PathMatch
from tests.kit.network import Network, ask, balance_policy, http_server
from tests.kit.sockets import Ticking, run, until

COUNT = 300
DST = Addr("10.43.0.9", 80)


def path(number: int) -> str:
    return f"s{number}.ns.svc.cluster.local:80"


def policy(*numbers: int) -> ClientPolicy:
    """A route with a rule for each number, which leads to the service of that number."""
    found = balance_policy()
    rules = tuple(
        ClientRule(
            (HttpMatch(PathMatch(prefix=f"/{number}")),),
            (),
            Distribution(
                FIRST_AVAILABLE,
                (RouteBackend(Backend(Meta("", "Service", f"s{number}", "ns"), Balance(path(number)))),),
            ),
        )
        for number in numbers
    )
    routes = (replace(found.http1_routes[0], rules=rules),)
    return replace(found, http1_routes=routes, http2_routes=routes)


def endpoints(questions: list[tuple[str, Any]]) -> set[str]:
    return {of for kind, of in questions if kind == "endpoints"}


def open_questions(network: Network) -> set[str]:
    """The names whose endpoints are still watched."""
    return {
        of for of in endpoints(network.fake.asked)
        if network.fake.asked.count(("endpoints", of)) > network.fake.closed.count(("endpoints", of))
    }  # fmt: skip


def test_the_last_of_many_rules_is_taken_at_once_and_all_are_built_in_turns() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        last = COUNT - 1
        network.fake.policies[DST] = watch = Watch[Any](policy(*range(COUNT)))
        network.fake.names[path(last)] = Watch(reset({await network.server(http_server("last")): EndpointMeta()}))
        network.start()
        destination: Destination = network.outbound.discovery.get(DST, SIDECAR)
        destination.hold()
        await until(lambda: isinstance(destination.effective.value, ClientPolicy))
        router = HttpRouter(network.outbound.runtime, network.outbound._protocols.rescue, destination, False)
        assert len(endpoints(network.fake.asked)) == limits.TURN_PARTS
        answer = await ask(network, DST, f"GET /{last} HTTP/1.1\r\nHost: web\r\n\r\n".encode())
        assert b"last" in answer
        await until(lambda: endpoints(network.fake.asked) == {path(number) for number in range(COUNT)})
        assert not network.fake.closed
        watch.set(policy(7, 8))
        assert 0 < len(network.fake.closed) <= 2 * limits.TURN_PARTS, "of this router and of the one that answered"
        gone = {path(number) for number in range(COUNT)} - {path(7), path(8)}
        await until(lambda: endpoints(network.fake.closed) == gone)
        watch.set(policy(*range(COUNT)))
        router.close()
        destination.release()
        network.close()

    run(story)


def split(*numbers: int) -> Profile:
    """A profile that splits the traffic over the services of these numbers."""
    return Profile("web.ns.svc.cluster.local:80", overrides=tuple((path(number), 1) for number in numbers))


@pytest.mark.parametrize("make", [HttpRouter, OpaqueRouter])
def test_a_split_over_hundreds_of_services_is_made_and_left_in_turns(
    make: type[HttpRouter] | type[OpaqueRouter],
) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking, DESTINATION_PROFILE_NETWORKS="10.0.0.0/8")
        network.fake.policies[DST] = Watch[Any](balance_policy())
        network.fake.profiles[str(DST)] = watch = Watch[Any](split(*range(COUNT)))
        network.start()
        destination: Destination = network.outbound.discovery.get(DST, SIDECAR)
        destination.hold()
        await until(lambda: isinstance(destination.effective.value, ClientPolicy))
        await until(lambda: isinstance(destination.profile.value, Profile))
        runtime = network.outbound.runtime
        router: HttpRouter | OpaqueRouter
        if make is HttpRouter:
            router = HttpRouter(runtime, network.outbound._protocols.rescue, destination, False)
        else:
            router = OpaqueRouter(runtime, destination, False)
        assert 0 < len(endpoints(network.fake.asked)) <= FIRST + limits.TURN_PARTS
        await until(lambda: endpoints(network.fake.asked) == {path(number) for number in range(COUNT)})
        assert not network.fake.closed
        watch.set(split(7, 8))
        assert 0 < len(network.fake.closed) <= limits.TURN_PARTS
        gone = {path(number) for number in range(COUNT)} - {path(7), path(8)}
        await until(lambda: endpoints(network.fake.closed) == gone)
        watch.set(split(*range(COUNT)))
        router.close()
        await until(lambda: open_questions(network) == set())
        destination.release()
        network.close()

    run(story)


def test_each_version_of_http_has_a_router_of_its_own() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = Watch[Any](policy(1))
        network.start()
        protocols = network.outbound._protocols
        destination = network.outbound.discovery.get(DST, SIDECAR)
        destination.hold()
        await until(lambda: isinstance(destination.effective.value, ClientPolicy))
        one, other = protocols.http_router(destination, False), protocols.http_router(destination, True)
        assert one is not other
        assert one is protocols.http_router(destination, False) and other is protocols.http_router(destination, True)
        destination.release()
        network.close()

    run(story)


def test_the_ways_of_hundreds_of_tls_routes_are_made_in_turns() -> None:
    def tls_policy(*numbers: int) -> ClientPolicy:
        routes = tuple(
            StreamRoute(
                Meta("g", "TLSRoute", f"r{number}", "ns"),
                Distribution(
                    FIRST_AVAILABLE, (RouteBackend(Backend(Meta("", "Service", "s", "ns"), Balance(path(number)))),)
                ),
                (HostMatch(f"{number}.example"),),
            )
            for number in numbers
        )
        return replace(balance_policy(protocol=TLS), tls_routes=routes)

    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        network.fake.policies[DST] = watch = Watch[Any](tls_policy(*range(COUNT)))
        network.start()
        destination = network.outbound.discovery.get(DST, SIDECAR)
        destination.hold()
        await until(lambda: isinstance(destination.effective.value, ClientPolicy))
        router = OpaqueRouter(network.outbound.runtime, destination, True)
        assert len(endpoints(network.fake.asked)) == limits.TURN_PARTS
        last = route_of_sni(router._routes, f"{COUNT - 1}.example")
        assert last is not None and last.way().chooser.choose() is not None, "one that is asked for is made at once"
        await until(lambda: endpoints(network.fake.asked) == {path(number) for number in range(COUNT)})
        assert not network.fake.closed
        watch.set(tls_policy(7, 8))
        await until(lambda: open_questions(network) == {path(7), path(8)})
        router.close()
        destination.release()
        network.close()

    run(story)
