"""Where a retry goes: to another endpoint if there is one, also if the policy, its backends or the endpoints change
during the backoff.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.balance.endpoints import Resolution, remove, reset
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.core.watch import Watch
from proxy.policy.client import HTTP_1, ClientPolicy, LeastRequestLoad, PeakEwmaLoad, Retry
from proxy.policy.endpoint import EndpointMeta
from tests.kit.http1 import http1_app
from tests.kit.network import Network, balance_policy
from tests.kit.service import Service, http1_answer, with_load
from tests.kit.sockets import Ticking, run, until
from tests.outbound.retry.test_overrides import DST, WEB, App, answer, ask, policy

RETRY = Retry(3, 65536, ((500, 599),), backoff=Backoff(1.0, 1.0, 0.0))


async def during_backoff(network: Network, *apps: App) -> asyncio.Task[bytes]:
    """A request that waits in its backoff: its first attempt has failed."""
    asking = asyncio.create_task(ask(network))
    await until(lambda: 'response_total{direction="outbound"' in network.metrics())
    assert network.outbound.runtime.in_flight.count == 1 and sum(len(app.requests) for app in apps) == 1
    assert not asking.done()
    return asking


async def two(ticking: Ticking) -> tuple[Network, list[App], Watch[Resolution[EndpointMeta]]]:
    network = Network(ticking)
    apps = [App(answer(500), answer(200)) for _ in range(2)]
    servers = [await network.server(http1_app(app.answer)) for app in apps]
    source = network.fake.names[WEB] = Watch(reset(dict.fromkeys(servers, EndpointMeta())))
    network.fake.policies[DST] = Watch(policy(HTTP_1, False, RETRY))
    network.start()
    for app in apps:
        network.closes(app.is_over.set)
    return network, apps, source


def test_an_endpoint_that_goes_during_the_backoff_is_not_asked() -> None:
    async def story(ticking: Ticking) -> None:
        network, apps, source = await two(ticking)
        asking = await during_backoff(network, *apps)
        index = next(number for number, app in enumerate(apps) if not app.requests)
        source.set(remove(source.value, [list(source.value.endpoints)[index]]))
        ticking.pass_time(1.2)
        assert (await asking).startswith(b"HTTP/1.1 200 ")
        assert not apps[index].requests and len(apps[1 - index].requests) == 2
        assert network.outbound.runtime.in_flight.count == 0
        network.close()

    run(story)


def test_a_backend_that_goes_during_the_backoff_brings_the_failure_back() -> None:
    async def story(ticking: Ticking) -> None:
        network, apps, _ = await two(ticking)
        asking = await during_backoff(network, *apps)
        other = balance_policy("other.ns.svc.cluster.local:80", HTTP_1)
        network.fake.policies[DST].set(replace(other, http2_routes=()))
        ticking.pass_time(1.2)
        said = await asking
        assert said.startswith(b"HTTP/1.1 500 ") and said.endswith(b"500")
        assert sum(len(app.requests) for app in apps) == 1
        assert network.outbound.runtime.in_flight.count == 0
        network.close()

    run(story)


@pytest.mark.parametrize("load", [PeakEwmaLoad(), LeastRequestLoad()])
def test_a_retry_goes_to_another_endpoint_though_that_one_is_busier(
    load: PeakEwmaLoad | LeastRequestLoad, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endpoint that has failed has nothing to do and would be picked by its load; the other one has five requests
    that it does not answer.
    """
    bad, busy = Addr("10.1.0.1", 80), Addr("10.1.0.2", 80)
    service = Service(monkeypatch, [busy])
    service.policy.set(with_load(retried(Retry(1, 65536, ((500, 599),))), load))
    for _ in range(5):
        service.begin()
    service.endpoints.set(reset({busy: EndpointMeta(), bad: EndpointMeta()}))
    service.said[bad] = http1_answer(503)
    for _ in range(20):
        before = len(service.asked)
        service.ask()
        if service.asked[before] == bad:
            assert service.asked[before:] == [bad, busy]
    assert bad in service.asked


def retried(retry: Retry) -> ClientPolicy:
    made = balance_policy()
    routes = tuple(
        replace(route, rules=tuple(replace(rule, retry=retry) for rule in route.rules)) for route in made.http1_routes
    )
    return replace(made, http1_routes=routes, http2_routes=routes)
