"""Which of a rule's backends are chosen, by weight and readiness, seen from a client (policy/test_distribution.py
tests the choice itself).
"""

from __future__ import annotations

import asyncio

from proxy.balance.endpoints import reset
from proxy.core.watch import Absent, Watch
from proxy.policy.client import RANDOM_AVAILABLE, ClientPolicy, Distribution
from proxy.policy.endpoint import EndpointMeta
from tests.kit.network import Network, http_server
from tests.kit.sockets import Ticking, run, until
from tests.outbound.http.test_http import DST, ask, backend, first, one_rule


def random_of(**weights: int) -> Distribution:
    return Distribution(RANDOM_AVAILABLE, tuple(backend(name, weight=weight) for name, weight in weights.items()))


class Backends:
    """One backend per letter; those with a capital letter have no endpoint and are known to be not ready."""

    def __init__(self, ticking: Ticking) -> None:
        self.ticking = ticking
        self.network = Network(ticking)
        self.policy: Watch[ClientPolicy | Absent | None] = Watch(None)

    async def start(self, ready: str, shut: str) -> None:
        network = self.network
        for name in ready:
            endpoint = await network.server(http_server(name))
            network.fake.names[f"{name}.ns.svc.cluster.local:80"] = Watch(reset({endpoint: EndpointMeta()}))
        for name in shut:
            network.fake.names[f"{name}.ns.svc.cluster.local:80"] = Watch(reset({}))
        everything = [backend(name) for name in shut + ready]
        network.fake.policies[DST] = self.policy
        network.start()
        for one in everything[: len(shut)]:
            self.policy.set(one_rule((), first(one, *everything)))
            waiting = asyncio.create_task(ask(network))
            await until(lambda one=one: ("endpoints", one.backend.dispatch.path) in network.fake.asked)  # type: ignore[misc]
            while not waiting.done():
                self.ticking.pass_time(0.05)
                await asyncio.sleep(0.01)
            assert (await waiting).startswith(b"HTTP/1.1 504 ")

    async def drawn(self, distribution: Distribution, count: int) -> dict[str, int]:
        """How often each backend answered; `503` counts requests for which there was none."""
        self.policy.set(one_rule((), distribution))
        found: dict[str, int] = {}
        for _ in range(count):
            answer = await ask(self.network)
            name = "503" if answer.startswith(b"HTTP/1.1 503 ") else answer[-1:].decode()
            found[name] = found.get(name, 0) + 1
        return found


def test_what_is_not_ready_leaves_its_share_to_the_others_by_their_weights() -> None:
    async def story(ticking: Ticking) -> None:
        backends = Backends(ticking)
        await backends.start("ab", "N")
        found = await backends.drawn(random_of(N=98, a=1, b=1), 80)
        assert set(found) == {"a", "b"}
        assert min(found.values()) >= 15, "half of 80 each, but for chance"
        backends.network.close()

    run(story)


def test_a_weight_of_0_is_never_drawn_even_if_nothing_else_is_ready() -> None:
    async def story(ticking: Ticking) -> None:
        backends = Backends(ticking)
        await backends.start("abz", "NM")
        assert await backends.drawn(random_of(z=0, N=1, M=1), 3) == {"503": 3}
        assert await backends.drawn(random_of(N=0, z=0), 3) == {"z": 3}, "all of them: as they stand"
        assert await backends.drawn(random_of(z=0, a=1), 3) == {"a": 3}, "a single weight is no exception"
        assert set(await backends.drawn(random_of(z=0, a=1, b=1), 40)) == {"a", "b"}
        backends.network.close()

    run(story)
