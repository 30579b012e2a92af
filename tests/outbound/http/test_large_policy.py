"""A policy of hundreds of rules: its stages are built, and left again, in shares, and a request has not to wait for its turn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxy.balance.endpoints import reset
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.outbound.discovery.discover import SIDECAR, Destination
from proxy.outbound.http.logical import HttpRouter
from proxy.policy.client import FIRST_AVAILABLE, Backend, Balance, ClientPolicy, ClientRule, Distribution, RouteBackend
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.meta import Meta
from proxy.policy.routes.route import HttpMatch, PathMatch
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
