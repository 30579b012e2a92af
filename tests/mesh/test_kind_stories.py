"""One test for each kind of policy and route: a manifest goes in, requests pass two sidecars, and their outcome is
compared.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from http.server import ThreadingHTTPServer
from typing import Any

import grpc
import pytest

from proxy.api import inbound_pb2, net_pb2, outbound_pb2, services
from proxy.api.services import Method
from proxy.control.convert.server import server_policy_of
from proxy.policy.authz import Client, find_authorization
from tests.interop.mesh import CLIENT_ID, INBOUND, SERVER_ID, Mesh
from tests.mesh.test_stories import App

BASE = """\
apiVersion: v1
kind: Service
metadata: {{name: one}}
spec: {{clusterIP: 10.98.0.1, selector: {{app: server}}, ports: [{{name: http, port: 80, targetPort: {one}}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: two}}
spec: {{clusterIP: 10.98.0.2, selector: {{app: server}}, ports: [{{name: http, port: 80, targetPort: {two}}}]}}
---
apiVersion: v1
kind: Service
metadata: {{name: far, namespace: elsewhere}}
spec: {{clusterIP: 10.98.0.3, ports: [{{name: http, port: 80}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: far-1, namespace: elsewhere, labels: {{kubernetes.io/service-name: far}}}}
addressType: IPv4
ports: [{{name: http, port: {two}}}]
endpoints: [{{addresses: [127.0.0.1]}}]
"""

SERVER = """\
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: one}
spec: {externalWorkloadSelector: {matchLabels: {app: server}}, port: ONE, accessPolicy: deny}
---
"""
ROUTE = """\
apiVersion: GROUP
kind: KIND
metadata: {name: route}
spec:
  parentRefs: [{group: core, kind: Service, name: one, port: 80}]
  rules: [{RULE}]
"""
TO_TWO = "backendRefs: [{name: two, port: 80}]"


class Telling:
    """A TCP app that sends its own port to every client that has sent something."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._port = port
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                if connection.recv(4096):
                    connection.sendall(f"{self._port}\n".encode())

    def close(self) -> None:
        self._socket.close()


class Story(Mesh):
    """The interop tests' mesh with two services of one workload; `put` adds a manifest for the duration of a test."""

    def _manifests(self) -> list[str]:
        self.one, self.two = self.take_port(), self.take_port()
        return [*super()._manifests()[:2], BASE.format(one=self.one, two=self.two)]

    @contextmanager
    def put(self, text: str) -> Iterator[None]:
        for name, value in (("ONE", self.one), ("TWO", self.two), ("PROXYPORT", self._server.inbound)):
            text = text.replace(name, str(value))
        path = self._folder / "manifests" / f"story-{sha256(text.encode()).hexdigest()[:8]}.yaml"
        beside = path.with_suffix(".new")
        beside.write_text(text)
        beside.rename(path)
        try:
            yield
        finally:
            path.unlink()

    def ask(self, authority: str = "one", path: str = "/") -> tuple[int, str]:
        """A request of a client whose `http_proxy` is its sidecar."""
        connection = http.client.HTTPConnection("127.0.0.1", self._client.outbound, timeout=20)
        try:
            connection.request("GET", f"http://{authority}{path}", headers={"Host": authority})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def through(self, authority: str, data: bytes) -> bytes:
        """What comes back through a tunnel (CONNECT), up to the end of a line."""
        with socket.create_connection(("127.0.0.1", self._client.outbound), 20) as connection:
            connection.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connection.recv(1) or b"\r\n\r\n"
            connection.sendall(data)
            found = b""
            while b"\n" not in found:
                try:
                    piece = connection.recv(4096)
                except ConnectionResetError:
                    break
                if not piece:
                    break
                found += piece
            return found

    def grpc(self, authority: str) -> grpc.Channel:
        options = [("grpc.default_authority", authority), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.insecure_channel(f"127.0.0.1:{self._client.outbound}", options=options)

    def is_let_in_unmeshed(self, port: int) -> bool:
        """Whether a client of another machine without TLS is admitted, by the policy that the server's proxy gets;
        loopback is always admitted.
        """
        workload = json.dumps({"ns": "default", "external_workload": "server"})
        policy = server_policy_of(
            self.control(services.INBOUND_GET_PORT, inbound_pb2.PortSpec(workload=workload, port=port))
        )
        return find_authorization(policy.routes[0].authorizations, Client("203.0.113.9", False, "")) is not None

    def is_known(self, port: int) -> bool:
        """Whether the control plane has a policy for a port of loopback."""
        target = net_pb2.TcpAddress(ip=net_pb2.IPAddress(ipv4=0x7F000001), port=port)
        source = json.dumps({"ns": "default", "external_workload": "client"})
        try:
            self.control(services.OUTBOUND_GET, outbound_pb2.TrafficSpec(source_workload=source, addr=target))
        except grpc.RpcError:
            return False
        return True

    def control(self, method: Method[Any, Any], request: Any) -> Any:
        """The control plane's first answer."""
        with grpc.insecure_channel(str(self._state.serving_addr())) as channel:
            make: Any = channel.unary_stream if method.is_stream else channel.unary_unary
            call = make(method.path, lambda message: message.SerializeToString(), method.response.FromString)
            return next(call(request, timeout=20)) if method.is_stream else call(request, timeout=20)

    def log(self) -> str:
        return (self._folder / "control-plane.log").read_text()


@pytest.fixture(scope="module")
def story() -> Iterator[Story]:
    with Story() as running:
        apps = [ThreadingHTTPServer(("127.0.0.1", port), App) for port in (running.one, running.two)]
        for app in apps:
            threading.Thread(target=app.serve_forever, daemon=True).start()
        try:
            until(lambda: running.ask() == (200, f"{running.one} mesh"))
            yield running
            assert running.complaints() == []
        finally:
            for app in apps:
                app.shutdown()
                app.server_close()


def until(is_so: Callable[[], object], deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def allowed(story: Story) -> bool:
    return story.ask() == (200, f"{story.one} mesh")


def refused(story: Story) -> bool:
    return story.ask()[0] == 403


def test_server(story: Story) -> None:
    with story.put(SERVER):
        until(lambda: refused(story))
        assert story.ask("two") == (200, f"{story.two} mesh"), "it is about one port"
    until(lambda: allowed(story))


@pytest.mark.parametrize(("account", "is_let_in"), [("client", True), ("other", False)])
def test_server_authorization(account: str, is_let_in: bool, story: Story) -> None:
    text = f"""\
apiVersion: policy.linkerd.io/v1beta1
kind: ServerAuthorization
metadata: {{name: a}}
spec: {{server: {{name: one}}, client: {{meshTLS: {{serviceAccounts: [{{name: {account}, namespace: default}}]}}}}}}
"""
    with story.put(SERVER):
        until(lambda: refused(story))
        with story.put(text):
            check(story, is_let_in)


def check(story: Story, is_let_in: bool) -> None:
    """Check that a change lets the client in, or that for a second, in which the control plane reads the change, it
    does not.
    """
    if is_let_in:
        until(lambda: allowed(story))
        return
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        assert refused(story)


def authorization(kind: str, spec: str) -> str:
    return f"""\
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: a}}
spec:
  targetRef: {{group: policy.linkerd.io, kind: Server, name: one}}
  requiredAuthenticationRefs: [{{group: policy.linkerd.io, kind: {kind}, name: who}}]
---
apiVersion: policy.linkerd.io/v1alpha1
kind: {kind}
metadata: {{name: who}}
spec: {{{spec}}}
"""


@pytest.mark.parametrize(
    ("kind", "spec", "is_let_in"),
    [
        ("MeshTLSAuthentication", f'identities: ["{CLIENT_ID}"]', True),
        ("MeshTLSAuthentication", f'identities: ["{SERVER_ID}"]', False),
        ("NetworkAuthentication", "networks: [{cidr: 127.0.0.0/8}]", True),
        ("NetworkAuthentication", "networks: [{cidr: 127.0.0.0/8, except: [127.0.0.1/32]}]", False),
    ],
)
def test_authorization_policy_and_authentications(kind: str, spec: str, is_let_in: bool, story: Story) -> None:
    with story.put(SERVER):
        until(lambda: refused(story))
        with story.put(authorization(kind, spec)):
            check(story, is_let_in)


def test_server_policy(story: Story) -> None:
    """STRICT lets in clients with an identity of the mesh; a rule that cannot be understood changes nothing."""
    text = """\
apiVersion: sponson.io/v1alpha1
kind: ServerPolicy
metadata: {name: one}
spec:
  selector: {matchLabels: {app: server}}
  rules: [{ports: [ONE], authenticationModes: [MODE]}]
"""
    with story.put(SERVER):
        until(lambda: refused(story))
        with story.put(text.replace("MODE", "STRICTLY")):
            until(lambda: "'STRICTLY' is none of" in story.log())
            assert refused(story)
    with story.put(text.replace("MODE", "STRICT")):
        until(lambda: not story.is_let_in_unmeshed(story.one))
        assert story.is_let_in_unmeshed(story.two)
        until(lambda: allowed(story))
        with story.put(text.replace("MODE", "PERMISSIVE").replace("name: one", "name: a")):
            until(lambda: story.is_let_in_unmeshed(story.one))


def test_rate_limit(story: Story) -> None:
    text = """\
apiVersion: policy.linkerd.io/v1alpha1
kind: HTTPLocalRateLimitPolicy
metadata: {name: a}
spec: {targetRef: {group: policy.linkerd.io, kind: Server, name: one}, total: {requestsPerSecond: 1}}
"""
    with story.put(SERVER.replace("deny", "all-unauthenticated") + text):
        until(lambda: 429 in {story.ask()[0] for _ in range(5)})
    until(lambda: {story.ask()[0] for _ in range(5)} == {200})


def test_namespace(story: Story) -> None:
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, annotations: {%s: deny}}\n"
    with story.put(text % "config.linkerd.io/default-inbound-policy"):
        until(lambda: refused(story))
    until(lambda: allowed(story))


@pytest.mark.parametrize("group", ["policy.linkerd.io/v1beta3", "gateway.networking.k8s.io/v1"])
def test_http_route(group: str, story: Story) -> None:
    rules = f"matches: [{{path: {{value: /two}}}}], {TO_TWO}}}, {{backendRefs: [{{name: one, port: 80}}]"
    with story.put(ROUTE.replace("GROUP", group).replace("KIND", "HTTPRoute").replace("RULE", rules)):
        until(lambda: story.ask(path="/two") == (200, f"{story.two} mesh"))
        assert allowed(story)
    until(lambda: story.ask(path="/two") == (200, f"{story.one} mesh"))


def test_reference_grant(story: Story) -> None:
    """A route sends requests to another namespace with and without a ReferenceGrant, as under Linkerd; typing errors
    in one are reported.
    """
    route = (
        ROUTE.replace("GROUP", "gateway.networking.k8s.io/v1")
        .replace("KIND", "HTTPRoute")
        .replace("RULE", "backendRefs: [{name: far, namespace: elsewhere, port: 80}]")
    )
    grant = """\
apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: a, namespace: elsewhere}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}]
  to: [{group: "", kind: Service, NAME: far}]
"""
    with story.put(route):
        until(lambda: story.ask() == (200, f"{story.two} plain"))
        with story.put(grant):
            until(lambda: "spec.to[0]: 'NAME' is no key here: did you mean name?" in story.log())
        with story.put(grant.replace("NAME", "name")):
            assert story.ask() == (200, f"{story.two} plain")


def test_egress_network(story: Story) -> None:
    """An address that is not a service's is refused or reached according to the narrowest network that contains it."""
    text = """\
apiVersion: policy.linkerd.io/v1alpha1
kind: EgressNetwork
metadata: {name: a, namespace: linkerd-egress}
spec: {networks: [{cidr: 127.0.0.1/8}], trafficPolicy: POLICY}
"""
    with ThreadingHTTPServer(("127.0.0.1", 0), App) as app:
        threading.Thread(target=app.serve_forever, daemon=True).start()
        authority = f"127.0.0.1:{app.server_port}"
        try:
            with story.put(text.replace("POLICY", "Deny")):
                until(lambda: story.is_known(app.server_port))
                assert story.ask(authority)[0] == 403
                with story.put(text.replace("POLICY", "Allow").replace("name: a", "name: b").replace("/8", "/32")):
                    until(lambda: story.ask(authority) == (200, f"{app.server_port} plain"))
        finally:
            app.shutdown()


# ---- kinds of other protocols, with apps of their own


@pytest.fixture
def telling() -> Iterator[Story]:
    with Story() as running:
        apps = [Telling(running.one), Telling(running.two)]
        try:
            yield running
            assert running.complaints() == []
        finally:
            for app in apps:
                app.close()


def hello(name: str) -> bytes:
    """The first bytes of a TLS client that asks for a name."""
    into = ssl.MemoryBIO()
    connection = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), into, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return into.read()


def test_tcp_route_tls_route_and_pod(telling: Story) -> None:
    story = telling
    to_one, to_two = f"{story.one}\n".encode(), f"{story.two}\n".encode()
    until(lambda: story.through("one:80", b"hello\n") == to_one)
    tcp = ROUTE.replace("GROUP", "gateway.networking.k8s.io/v1alpha2").replace("RULE", TO_TWO)
    with story.put(tcp.replace("KIND", "TCPRoute")):
        until(lambda: story.through("one:80", b"hello\n") == to_two)
    until(lambda: story.through("one:80", b"hello\n") == to_one)
    tls = tcp.replace("KIND", "TLSRoute").replace("spec:\n", "spec:\n  hostnames: [two.example]\n")
    with story.put(tls):
        until(lambda: story.through("one:80", hello("two.example")) == to_two)
    pod = """\
apiVersion: v1
kind: Pod
metadata:
  name: poddy
  labels: {linkerd.io/control-plane-ns: linkerd}
  annotations: {config.linkerd.io/opaque-ports: "TWO"}
spec:
  serviceAccountName: server
  containers:
  - {name: app, ports: [{containerPort: TWO}]}
  - {name: linkerd-proxy, env: [{name: LINKERD2_PROXY_INBOUND_LISTEN_ADDR, value: "127.0.0.1:PROXYPORT"}]}
status: {phase: Running, podIP: 127.0.0.1, conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: podded, annotations: {config.linkerd.io/opaque-ports: "80"}}
spec: {clusterIP: 10.98.0.4, ports: [{name: tcp, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: podded-1, labels: {kubernetes.io/service-name: podded}}
addressType: IPv4
ports: [{name: tcp, port: TWO}]
endpoints: [{addresses: [127.0.0.1], targetRef: {kind: Pod, name: poddy, namespace: default}}]
"""
    with story.put(pod):
        until(lambda: story.through("podded:80", b"hello\n") == to_two)
        labels = ('direction="outbound"', 'tls="true"', f'server_id="{SERVER_ID}"', f"127.0.0.1:{story.two}")
        assert story.metric("outbound", "tcp_open_total", *labels[:3]) > 0
        assert (
            story.metric(
                INBOUND, "tcp_open_total", 'tls="true"', f'client_id="{CLIENT_ID}"', f'target_port="{story.two}"'
            )
            > 0
        )


class Named(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # it is generic in its stubs only
    """Answers every unary call with its own port."""

    def __init__(self, port: int) -> None:
        self._port = port

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: str(self._port).encode())


def test_grpc_route() -> None:
    with Story() as story:
        servers = []
        for port in (story.one, story.two):
            server = grpc.server(ThreadPoolExecutor(2))
            server.add_generic_rpc_handlers((Named(port),))
            server.add_insecure_port(f"127.0.0.1:{port}")
            server.start()
            servers.append(server)
        rules = f"matches: [{{method: {{service: app.Votes, method: Two}}}}], {TO_TWO}}}, {{backendRefs: [{{name: one, port: 80}}]"
        route = (
            ROUTE.replace("GROUP", "gateway.networking.k8s.io/v1").replace("KIND", "GRPCRoute").replace("RULE", rules)
        )
        try:
            with story.grpc("one.default.svc.cluster.local") as channel, story.put(route):

                def call(method: str) -> bytes:
                    make: Any = channel.unary_unary
                    try:
                        return bytes(make(f"/app.Votes/{method}")(b"", timeout=20))
                    except grpc.RpcError:
                        return b""

                until(lambda: call("Two") == str(story.two).encode())
                assert call("One") == str(story.one).encode()
            assert story.complaints() == []
        finally:
            for server in servers:
                server.stop(None)
