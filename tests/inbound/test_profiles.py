"""ServiceProfiles on the inbound side: which requests are looked up, what is counted, and how long a lookup may delay
requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from proxy.core import limits
from proxy.core.failure.reason import Reason
from proxy.core.watch import Absent, Watch
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.headers import field
from proxy.inbound.http.profiles import InboundProfiles
from proxy.metrics import Registry
from proxy.policy.profiles.condition import AllOf, MethodIs
from proxy.policy.profiles.profile import Profile, ProfileRoute, ResponseClasses
from tests.inbound.kit import OK, Workload
from tests.kit.http1 import Client
from tests.kit.network import config
from tests.kit.service import Soon
from tests.kit.sockets import Ticking, run, until
from tests.kit.streams import FakeServer, FakeStage

NAME = "web.ns.svc.cluster.local:80"
GETS = ProfileRoute(
    AllOf((MethodIs(b"GET"),)), (("route", "gets"),), ResponseClasses(failures=frozenset((200,))), has_classes=True
)
PROFILE = Profile(NAME, routes=(GETS,))
Answer = Profile | Absent | None


def request(canonical: str = NAME, method: str = "GET") -> bytes:
    named = f"l5d-dst-canonical: {canonical}\r\n" if canonical else ""
    return f"{method} / HTTP/1.1\r\nhost: web\r\n{named}\r\n".encode()


class Asked:
    """A destination service whose answers the test sets."""

    def __init__(self, answer: Answer = None) -> None:
        self.answer = answer
        self.watches: dict[str, Watch[Answer]] = {}
        self.closed: list[str] = []

    def __call__(self, name: str) -> Watch[Answer]:
        made = self.watches[name] = Watch(self.answer, lambda: self.closed.append(name))
        return made


def story(play: Callable[[Workload, Asked, Client], Any], answer: Answer = PROFILE) -> None:
    async def whole(ticking: Ticking) -> None:
        asked = Asked(answer)
        async with Workload(ticking) as workload:
            workload.find_profile = asked
            client = await workload.connect_tls()
            await play(workload, asked, client)
            client.close()

    run(whole)


def test_a_request_is_counted_and_classified_by_the_profile_that_it_names() -> None:
    async def play(workload: Workload, asked: Asked, client: Client) -> None:
        for method in ("GET", "GET", "PUT"):
            assert await client.ask(request(method=method)) == OK
        assert b"l5d-dst-canonical: " + NAME.encode() in workload.app.all_said, "the app gets it, as with Linkerd"
        start = f'route_request_total{{direction="inbound",dst="{NAME}"'
        assert sorted(workload.lines("route_request_total")) == [start + ',rt_route="gets"} 2', start + "} 1"]
        failed = 'status_code="200",classification="failure",grpc_status="",error=""'
        assert workload.metric("route_response_total", 'rt_route="gets"', failed) == 2
        assert workload.metric("response_total", failed) == 2, "the route's classes are the workload's"
        assert workload.metric("response_total", 'classification="success"') == 1
        assert workload.metric("route_response_latency_ms_count", 'rt_route="gets"') == 2
        assert not workload.lines("route_actual_request_total"), "nothing is sent twice here"
        assert list(asked.watches) == [NAME]
        asked.watches[NAME].set(Profile(NAME))
        assert await client.ask(request()) == OK
        assert workload.metric("route_request_total", 'rt_route="gets"') == 2, "a profile that changed counts at once"

    story(play)


def test_what_names_no_service_of_the_mesh_is_not_looked_up() -> None:
    async def play(workload: Workload, asked: Asked, client: Client) -> None:
        for canonical in (
            "",
            "web.ns.svc.cluster.local",
            "example.com:80",
            "web.ns.svc.cluster.local:0",
            "10.0.0.1:80",
            "%:1",
        ):
            assert await client.ask(request(canonical)) == OK
        plain = await workload.connect()
        assert await plain.ask(request()) == OK, "whoever is not of the mesh cannot name one"
        plain.close()
        assert not asked.watches and not workload.lines("route_request_total")

    story(play)


def test_without_a_profile_or_its_name_nothing_is_counted() -> None:
    for answer in (Absent("there is none"), Profile(routes=(GETS,))):

        async def play(workload: Workload, asked: Asked, client: Client) -> None:
            assert await client.ask(request()) == OK
            assert list(asked.watches) == [NAME] and not workload.lines("route_request_total")

        story(play, answer)


def test_requests_wait_for_the_first_answer() -> None:
    async def play(workload: Workload, asked: Asked, client: Client) -> None:
        clients = [await workload.connect_tls() for _ in range(3)]
        answers = [asyncio.create_task(one.ask(request())) for one in clients]
        await until(lambda: workload.metric("request_total", 'direction="inbound"') == 3)
        assert not workload.app.all_said
        asked.watches[NAME].set(PROFILE)
        assert await asyncio.gather(*answers) == [OK] * 3
        assert workload.metric("route_request_total") == 3
        for one in clients:
            one.close()

    story(play, None)


def test_many_that_waited_are_sent_on_in_turns_and_who_has_left_is_not() -> None:
    soon = Soon()
    ticking = Ticking(cast(Any, soon))
    watch: Watch[Answer] = Watch(None)
    profiles = InboundProfiles(ticking.reactor, config(), Registry(ticking.reactor.clock), lambda name: watch)
    onward = FakeStage()
    named = [field(b"l5d-dst-canonical", NAME.encode())]
    exchanges = [
        Exchange(FakeServer(), RequestHead(b"GET", b"http", b"web", b"/", named, 0), ticking.now) for _ in range(200)
    ]
    for one in exchanges:
        profiles.dispatch(one, onward)
    assert not onward.exchanges
    watch.set(PROFILE)
    assert onward.exchanges == exchanges[: limits.TURN_WAITERS]
    exchanges[-1].request_reset(Reason.PEER_CLOSED)
    soon.run()
    assert onward.exchanges == exchanges[:-1]
    profiles.close()


def test_nobody_waits_longer_than_the_variable_says() -> None:
    async def play(workload: Workload, asked: Asked, client: Client) -> None:
        answer = asyncio.create_task(client.ask(request()))
        await until(lambda: NAME in asked.watches)
        workload.ticking.pass_time(0.6)
        assert await answer == OK and not workload.lines("route_request_total")
        assert await client.ask(request()) == OK, "nor does who comes later"
        asked.watches[NAME].set(PROFILE)
        assert await client.ask(request()) == OK
        assert workload.metric("route_request_total") == 1

    story(play, None)


@pytest.mark.acceptance("GATE-05")
def test_the_profile_decides_once_it_is_known_and_what_is_late_holds_nobody_up() -> None:
    """As in Linkerd, requests take the profile's routes if the profile is known in time, and go to the app without them if not."""

    async def play(workload: Workload, asked: Asked, client: Client) -> None:
        def by_profile() -> float:
            return workload.metric("route_request_total")

        # Waits that are short enough never add up: each profile that is asked for has the whole time.
        for number in range(4):
            name = f"web{number}.ns.svc.cluster.local:80"
            answer = asyncio.create_task(client.ask(request(name)))
            await until(lambda name=name: name in asked.watches)  # type: ignore[misc]  # mypy wants no defaults here
            workload.ticking.pass_time(0.4)
            asked.watches[name].set(Profile(name, routes=(GETS,)))
            assert await answer == OK and by_profile() == number + 1
        # One that is late: without it; and with it as soon as it is there, for those who come then.
        answer = asyncio.create_task(client.ask(request()))
        await until(lambda: NAME in asked.watches)
        workload.ticking.pass_time(0.6)
        assert await answer == OK and by_profile() == 4
        asked.watches[NAME].set(PROFILE)
        assert await client.ask(request()) == OK and by_profile() == 5
        # An error of the app's is passed on either way.
        workload.app.answer = lambda said: b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"
        assert (await client.ask(request())).startswith(b"HTTP/1.1 500 No\r\n") and by_profile() == 6
        asked.watches[NAME].set(Absent("gone"))
        assert (await client.ask(request())).startswith(b"HTTP/1.1 500 No\r\n") and by_profile() == 6

    story(play, None)


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    async def play(workload: Workload, asked: Asked, client: Client) -> None:
        other = await workload.connect_tls()
        other.write(request())
        await until(lambda: NAME in asked.watches)
        other.writer.transport.abort()
        await until(lambda: len(workload.drain) == 1)
        asked.watches[NAME].set(PROFILE)
        assert await client.ask(request(method="PUT")) == OK
        assert not workload.metric("route_request_total", "rt_route")

    story(play, None)


def test_profiles_are_bounded_in_number_and_let_go_when_nobody_names_them() -> None:
    async def play(workload: Workload, asked: Asked, client: Client) -> None:
        count = limits.INBOUND_PROFILES + 2
        for number in range(count):
            assert await client.ask(request(f"web{number}.ns.svc.cluster.local:80")) == OK
        assert len(asked.watches) == count and asked.closed == [
            f"web{number}.ns.svc.cluster.local:80" for number in range(2)
        ]
        workload.ticking.pass_time(80.0)
        last = f"web{count - 1}.ns.svc.cluster.local:80"
        assert await client.ask(request(last)) == OK
        workload.ticking.pass_time(20.0)
        assert len(asked.closed) == count - 1 and last not in asked.closed
        workload.ticking.pass_time(100.0)
        assert last in asked.closed

    story(play)
