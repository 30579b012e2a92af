"""What happens to requests on their way: a manifest goes in, requests pass two sidecars, and their outcome is compared.

Retries, timeouts and breakers by annotations and by routes, and ServiceProfiles.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from itertools import count

import pytest

from proxy.api import destination_pb2, services
from tests.mesh.test_kind_stories import Story as Kinds
from tests.mesh.test_kind_stories import until
from tests.mesh.test_stories import App

SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, annotations: {annotations}}}
spec: {{clusterIP: 10.98.0.{number}, selector: {{app: server}}, ports: [{{name: http, port: 80, targetPort: {port}}}]}}
"""
ANNOTATIONS = {
    "retried": "{retry.linkerd.io/http: 5xx, retry.linkerd.io/limit: '2'}",
    "hurried": "{timeout.linkerd.io/response: 2s}",
    "broken": "{balancer.linkerd.io/failure-accrual: consecutive,"
    " balancer.linkerd.io/failure-accrual-consecutive-max-failures: '3',"
    " balancer.linkerd.io/failure-accrual-consecutive-min-penalty: 8s,"
    " balancer.linkerd.io/failure-accrual-consecutive-max-penalty: 10s}",
    "plain": "{}",
    "profiled": "{}",
    "split": "{}",
}

ROUTE = """\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: plain, annotations: ANNOTATIONS}
spec:
  parentRefs: [{group: core, kind: Service, name: plain, port: 80}]
  rules: [RULE]
"""
PROFILE = """\
apiVersion: linkerd.io/v1alpha2
kind: ServiceProfile
metadata: {name: NAME.default.svc.cluster.local}
spec: SPEC
"""


_NUMBERS = count()


class Moody(App):
    """Fails the first request of every path under /once, fails all requests under /ill, and waits under /slow."""

    asked: Counter[str] = Counter()
    may_answer = threading.Event()

    def do_GET(self) -> None:
        path = self.path
        self.asked[path] += 1
        if path.startswith("/slow"):
            self.may_answer.wait(10)
        if (path.startswith("/once") and self.asked[path] == 1) or path.startswith("/ill"):
            self.send_response(503)
            self.send_header("content-length", "3")
            self.end_headers()
            self.wfile.write(b"ill")
            return
        super().do_GET()


class Apps(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that has given up."""


class Story(Kinds):
    def _manifests(self) -> list[str]:
        found = super()._manifests()
        named = enumerate(ANNOTATIONS.items(), 10)
        texts = (
            SERVICE.format(name=name, annotations=annotations, number=number, port=self.one)
            for number, (name, annotations) in named
        )
        return [*found[:-1], found[-1] + "".join(texts)]


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with Story() as running:
        apps = [Apps(("127.0.0.1", port), Moody) for port in (running.one, running.two)]
        for app in apps:
            threading.Thread(target=app.serve_forever, daemon=True).start()
        try:
            until(lambda: running.ask("plain") == (200, f"{running.one} mesh"))
            yield running
            assert running.complaints() == []
        finally:
            Moody.may_answer.set()
            for app in apps:
                app.shutdown()
                app.server_close()


def good(story: Story) -> tuple[int, str]:
    return 200, f"{story.one} mesh"


def test_a_service_without_any_of_these_passes_failures_on(story: Story) -> None:
    assert story.ask("plain", "/once/plain") == (503, "ill")
    assert story.ask("plain", "/once/plain") == good(story)


def test_retries_of_a_service(story: Story) -> None:
    assert story.ask("retried", "/once/service") == good(story)
    assert Moody.asked["/once/service"] == 2
    assert story.ask("retried", "/ill/service") == (503, "ill")
    assert Moody.asked["/ill/service"] == 3, "the first, and two retries"


def test_retries_of_a_route(story: Story) -> None:
    route = ROUTE.replace("ANNOTATIONS", "{retry.linkerd.io/http: gateway-error}").replace("RULE", "{}")
    with story.put(route):
        until(lambda: is_retried(story))
    until(lambda: not is_retried(story))


def is_retried(story: Story) -> bool:
    """Whether a request that fails once is sent again, so that its client does not notice."""
    return story.ask("plain", f"/once/route/{next(_NUMBERS)}")[0] == 200


def test_timeouts_of_a_service(story: Story) -> None:
    assert story.ask("hurried") == good(story)
    assert story.ask("hurried", "/slow/service")[0] == 504
    assert Moody.asked["/slow/service"] == 1


def test_timeouts_of_a_route(story: Story) -> None:
    rule = "{matches: [{path: {type: PathPrefix, value: /slow}}], timeouts: {request: 2s}}, {}"
    with story.put(ROUTE.replace("ANNOTATIONS", "{}").replace("RULE", rule)):
        until(lambda: story.ask("plain", "/slow/route")[0] == 504)
        assert story.ask("plain") == good(story)


def test_a_breaker_of_a_service(story: Story) -> None:
    """After three failures in a row the only endpoint is kept out for longer than requests wait; then a request finds
    it well again.
    """
    assert [story.ask("broken", "/ill/breaker") for _ in range(3)] == [(503, "ill")] * 3
    status, text = story.ask("broken")
    assert status in (503, 504) and "ill" not in text.split(), text
    until(lambda: story.ask("broken") == good(story))
    assert Moody.asked["/ill/breaker"] == 3


def test_a_profiles_retries_and_timeouts(story: Story) -> None:
    routes = (
        "{routes: [{name: once, condition: {method: GET, pathRegex: '/once/.*'}, isRetryable: true},"
        " {name: slow, condition: {pathRegex: '/slow/.*'}, timeout: 2s}],"
        " retryBudget: {retryRatio: 0.2, minRetriesPerSecond: 10, ttl: 10s}}"
    )
    with story.put(PROFILE.replace("NAME", "profiled").replace("SPEC", routes)):
        asked = destination_pb2.GetDestination(path="profiled.default.svc.cluster.local:80")
        until(lambda: len(story.control(services.GET_PROFILE, asked).routes) == 2)
        until(lambda: story.ask("profiled", "/slow/profile")[0] == 504)
        assert story.ask("profiled", "/once/profile") == good(story)
        assert Moody.asked["/once/profile"] == 2
    assert "ServiceProfile default/profiled" not in story.log()


def test_a_profiles_split(story: Story) -> None:
    override = "{dstOverrides: [{authority: 'two.default.svc.cluster.local:80', weight: 1}]}"
    assert story.ask("split") == good(story)
    with story.put(PROFILE.replace("NAME", "split").replace("SPEC", override)):
        until(lambda: story.ask("split") == (200, f"{story.two} mesh"))
    until(lambda: story.ask("split") == good(story))
