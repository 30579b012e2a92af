"""Adds a filter of routes that gives the request another path."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exercises.kit import Exercise

pytestmark = pytest.mark.timeout(600)  # a type checker without its cache, perhaps on a busy machine

VALUE = "proxy/policy/routes/route.py"
EFFECT = "proxy/policy/routes/filter.py"
MESSAGE = "proxy/control/convert/route.py"


def add_value(exercise: Exercise) -> None:
    exercise.put(
        VALUE,
        "Filter = HeaderModifier | Redirect | FailureInjector | Unusable",
        '''@dataclass(frozen=True, slots=True)
class PathRewrite:
    """The request goes on with this path."""

    path: str


''',
    )
    exercise.replace(VALUE, "Filter = HeaderModifier |", "Filter = PathRewrite | HeaderModifier |")


def add_effect(exercise: Exercise) -> None:
    exercise.replace(EFFECT, "Filter, HeaderModifier, Redirect,", "Filter, HeaderModifier, PathRewrite, Redirect,")
    exercise.put(
        EFFECT,
        "elif isinstance(one, Redirect):",
        """        elif isinstance(one, PathRewrite):
            on_request.append(Rewriting(one).of_request)
""",
    )
    exercise.put(
        EFFECT,
        "# ---- failures",
        """class Rewriting:
    __slots__ = ("_path",)

    def __init__(self, rewrite: PathRewrite) -> None:
        self._path: Final = rewrite.path.encode()

    def of_request(self, head: RequestHead, match: Match) -> RequestHead:
        rewritten = head.copy()
        rewritten.path = self._path
        return rewritten


""",
    )


def add_message(exercise: Exercise) -> None:
    exercise.replace(MESSAGE, "    HttpMatch,\n    PathMatch,\n", "    HttpMatch,\n    PathMatch,\n    PathRewrite,\n")
    exercise.put(
        MESSAGE,
        '"redirect": lambda message: redirect_of(message.redirect),',
        """    "path_rewrite": lambda message: PathRewrite(message.path_rewrite.path),
""",
    )


STORY = """
import asyncio
from types import SimpleNamespace
from proxy.control.convert.route import filter_of
from proxy.core.watch import Watch
from proxy.balance.endpoints import reset
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.routes.route import HttpMatch
from tests.inbound.kit import OK, Workload
from tests.inbound.test_policy import ANYONE, of, request, route
from tests.kit.network import Network, http_server
from tests.kit.sockets import run
from tests.outbound.http.test_http import DST, ask, backend, first, one_rule

rewrite = filter_of("path_rewrite", SimpleNamespace(path_rewrite=SimpleNamespace(path="/new")))

async def inbound(ticking):
    async with Workload(ticking, of(route("all", HttpMatch(), ANYONE, filters=(rewrite,)))) as workload:
        client = await workload.connect()
        assert await client.ask(request("GET", "/old")) == OK
        print("inbound", workload.app.saw[0].split()[1].decode())
        client.close()

async def outbound(ticking):
    network = Network(ticking)
    seen = []
    network.fake.names["a.ns.svc.cluster.local:80"] = Watch(reset({await network.server(http_server("a", seen)): EndpointMeta()}))
    network.fake.policies[DST] = Watch(one_rule((rewrite,), first(backend("a"))))
    network.start()
    await ask(network)
    print("outbound", seen[0].split()[1].decode())
    network.close()

run(inbound)
run(outbound)
"""


def test_a_filter_takes_its_value_its_effect_and_its_message(tmp_path: Path) -> None:
    exercise = Exercise(tmp_path)
    add_value(exercise)
    add_effect(exercise)
    add_message(exercise)
    assert exercise.run(STORY).split() == ["inbound", "/new", "outbound", "/new"]
    assert exercise.files == {VALUE, EFFECT, MESSAGE}


def test_the_type_checker_says_where_a_filter_without_effect_is_missing(tmp_path: Path) -> None:
    exercise = Exercise(tmp_path)
    add_value(exercise)
    errors = exercise.type_errors(EFFECT)
    assert len(errors) == 1 and "assert_never" in errors[0] and "PathRewrite" in errors[0], errors
