"""Makes the table of docs/troubleshooting.md anew: each failure is caused in a mesh of processes, and its symptoms are
compared with the table.

`SPONSON_TEST_WRITE=1` writes the table into the document.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from proxy.cli.demo.http import fetch
from proxy.cli.demo.mesh import DemoMesh, Sidecar

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "troubleshooting.md"
BEGIN, END = "<!-- what tests/run/test_troubleshooting.py saw -->\n", "<!-- end -->\n"
DEADLINE_S: Final = 60.0
WEB: Final = "web.default.svc.cluster.local"
NOT_SEEN: Final = "—"

EMPTY = """\
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {selector: {app: nobody}, ports: [{name: http, port: 80, targetPort: http}]}
"""
POLICY = """\
apiVersion: policy.linkerd.io/v1beta3
kind: Server
metadata: {name: web-http}
spec: {externalWorkloadSelector: {matchLabels: {app: web}}, port: http, proxyProtocol: HTTP/1}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: MeshTLSAuthentication
metadata: {name: friends}
spec: {identities: [friend.default.serviceaccount.identity.linkerd.cluster.local]}
---
apiVersion: policy.linkerd.io/v1alpha1
kind: AuthorizationPolicy
metadata: {name: friends-only}
spec:
  targetRef: {group: policy.linkerd.io, kind: Server, name: web-http}
  requiredAuthenticationRefs: [{group: policy.linkerd.io, kind: MeshTLSAuthentication, name: friends}]
"""

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not DOCUMENT.exists(), reason="an installed package has no documents here"),
]


class Answer(NamedTuple):
    status: int
    fields: dict[str, str]
    body: str


class Case(NamedTuple):
    failure: str
    """The failure's name in the document."""
    ask: Callable[[DemoMesh], Awaitable[Answer | None]]
    client_line: str
    """The text in the log line at the client's side; empty for none."""
    server_line: str
    metric: str
    """The metric that counts it, at either side."""
    is_so: Callable[[Answer | None], bool]
    """Whether the failure has occurred; a change that was just made may need a moment."""


async def get(mesh: DemoMesh, url: str, wait_s: float = 20.0) -> Answer | None:
    """What an app behind the client's sidecar gets; None if nothing comes in time."""
    reader, writer = await asyncio.open_connection(*mesh.client.outbound)
    host = url.partition("://")[2].partition("/")[0]
    writer.write(f"GET {url} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
    try:
        data = (await asyncio.wait_for(reader.read(), wait_s)).decode()
    except TimeoutError:
        return None
    finally:
        writer.close()
    head, _, body = data.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(first.split(" ")[1]), fields, body)


def url(path: str) -> Callable[[DemoMesh], Awaitable[Answer | None]]:
    return lambda mesh: get(mesh, path)


async def app_is_down(mesh: DemoMesh) -> Answer | None:
    mesh.replicas[0].stop()
    return await get(mesh, f"http://{WEB}/")


async def sidecar_is_down(mesh: DemoMesh) -> Answer | None:
    if not mesh.killed:
        await mesh.kill(0)
    return await get(mesh, f"http://{WEB}/")


async def loop(mesh: DemoMesh) -> Answer | None:
    return await get(mesh, f"http://{mesh.client.outbound}/")


async def tls_to_the_proxy(mesh: DemoMesh) -> Answer | None:
    reader, writer = await asyncio.open_connection(*mesh.client.outbound)
    writer.write(bytes.fromhex("16030100050100000100"))
    alert = await asyncio.wait_for(reader.read(), DEADLINE_S)
    writer.close()
    assert alert[:1] == b"\x15", alert
    return None


async def refused(mesh: DemoMesh) -> Answer | None:
    policy = mesh.directory / "manifests" / "policy.yaml"
    if not policy.exists():
        mesh.write_manifests(mesh.servers[1:2])
        policy.write_text(POLICY)
    return await get(mesh, f"http://{WEB}/")


async def app_is_stopped(mesh: DemoMesh) -> Answer | None:
    """The app accepts the connection and then sends nothing, as after SIGSTOP."""
    mesh.replicas[0].delay_s = 3600.0
    return await get(mesh, f"http://{WEB}/", 3.0)


def has(status: int, text: str = "") -> Callable[[Answer | None], bool]:
    return lambda answer: answer is not None and answer.status == status and text in answer.body


CASES: Final = (
    Case("the app is stopped: it takes connections and never answers", app_is_stopped, "the client gave up", "",
         "", lambda answer: answer is None),
    Case("the app is down, its sidecar runs", app_is_down, "its sidecar answered 502", "request failed",
         'response_total{direction="outbound",status_code="502"}', has(502)),
    Case("the app and its sidecar are down", sidecar_is_down, "Request failed", "", 'outbound_http_errors_total{error="failfast"}',
         has(504, "Connection refused")),
    Case("a service without endpoints", url("http://empty.default.svc.cluster.local/"), "Request failed", "",
         'outbound_http_errors_total{error="failfast"}', has(504)),
    Case("a port that the service does not have (`:8080` for `:80`, or a missing `ports`)", url(f"http://{WEB}:8080/"),
         "Request failed", "", 'outbound_http_errors_total{error="not http"}', has(502)),
    Case("a service that is not there", url("http://webb.default.svc.cluster.local/"), "Request failed", "",
         'outbound_http_errors_total{error="not served"}', has(502)),
    Case("a short name that is no service of the client's namespace", url("http://webb/"), "Request failed", "",
         'outbound_http_errors_total{error="not served"}', has(502)),
    Case("a name that cannot be resolved", url("http://no-such-name.invalid/"), "cannot be resolved", "",
         'outbound_http_errors_total{error="unresolved"}', has(502)),
    Case("a loop: the proxy is asked for itself", loop, "Request failed", "",
         'outbound_http_errors_total{error="loop"}', has(403)),
    Case("`https://` without CONNECT: TLS to the proxy itself", tls_to_the_proxy, "speaks TLS to this proxy", "",
         'sponson_connection_faults_total{direction="outbound",reason="tls_without_connect"}', lambda answer: answer is None),
    Case("an `https://` URL in a plain request", url(f"https://{WEB}/"), "Request failed", "",
         'outbound_http_errors_total{error="bad request"}', has(400)),
    Case("refused by policy", refused, "its sidecar answered 403", "Request denied", 'inbound_http_authz_deny_total{srv_name="web-http"}', has(403)),
)  # fmt: skip


def test_the_table_is_what_happens() -> None:
    rows = asyncio.run(provoked())
    table = "\n".join(
        [
            "| failure | answer | body | log of the client's sidecar | log of the server's sidecar | metric |",
            "|---|---|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in rows),
            "",
        ]
    )
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    written, _, after = rest.partition(END)
    if os.environ.get("SPONSON_TEST_WRITE"):
        DOCUMENT.write_text(f"{before}{BEGIN}{table}{END}{after}")
    else:
        assert written == table


async def provoked() -> list[list[str]]:
    async with DemoMesh(asyncio.Event()) as mesh:
        (mesh.directory / "manifests" / "empty.yaml").write_text(EMPTY)
        mesh.write_manifests(mesh.servers[:1])
        return [await row(mesh, case) for case in CASES]


async def row(mesh: DemoMesh, case: Case) -> list[str]:
    everywhere = [
        mesh.client,
        *mesh.servers[1:],
        *([] if case.ask is sidecar_is_down or mesh.killed else mesh.servers[:1]),
    ]
    before = await values(everywhere, case.metric) if case.metric else 0.0
    written = {one.name: len(lines_of(mesh, one)) for one in (mesh.client, *mesh.servers)}
    end = asyncio.get_running_loop().time() + DEADLINE_S
    while not case.is_so(answer := await case.ask(mesh)):
        assert asyncio.get_running_loop().time() < end, f"{case.failure}: {answer}"
        await asyncio.sleep(0.2)
    servers = [one for one in mesh.servers if one.name not in mesh.killed]
    status, body = "none", NOT_SEEN
    if answer is not None:
        error = answer.fields.get("l5d-proxy-error")
        status = f"{answer.status}" + (f", `l5d-proxy-error: {told(error)}`" if error else "")
        assert answer.fields.get("content-type", "") == ("text/plain" if answer.body else "")
        body = "<br>".join(told(line) for line in answer.body.splitlines()[1:])
    elif "TLS" in case.failure:
        status = "a TLS alert"
    if case.metric:
        assert await values(everywhere, case.metric) > before, f"{case.failure}: nothing counted {case.metric}"
    return [
        case.failure,
        status,
        body,
        await logged(mesh, [mesh.client], written, case.client_line),
        await logged(mesh, servers, written, case.server_line),
        f"`{case.metric}`" if case.metric else NOT_SEEN,
    ]


def lines_of(mesh: DemoMesh, sidecar: Sidecar) -> list[str]:
    return (mesh.directory / f"{sidecar.name}.log").read_text().splitlines()


async def logged(mesh: DemoMesh, sidecars: list[Sidecar], written: dict[str, int], needle: str) -> str:
    """The last line with this text that was logged after those that were written before, without its time, level and
    target.
    """
    if not needle:
        return NOT_SEEN
    end = asyncio.get_running_loop().time() + DEADLINE_S
    while True:
        for one in sidecars:
            found = [line for line in lines_of(mesh, one)[written[one.name] :] if needle in line]
            if found:
                return f"`{told(re.sub(r'^.*?ThreadId.[0-9]+. ', '', found[-1]))}`"
        assert asyncio.get_running_loop().time() < end, f"no line has {needle!r}"
        await asyncio.sleep(0.05)


async def values(sidecars: list[Sidecar], metric: str) -> float:
    """The sum of a metric's series that have these labels, over all sidecars."""
    name, _, labels = metric.rstrip("}").partition("{")
    total = 0.0
    for one in sidecars:
        page = (await fetch(one.admin, "/metrics")).body.decode()
        for line in page.splitlines():
            if line.startswith((f"{name}{{", f"{name} ")) and all(label in line for label in labels.split(",")):
                total += float(line.rpartition(" ")[2])
    return total


def told(text: str) -> str:
    """The text without what differs from run to run, as a cell of a table."""
    text = re.sub(r"([:=])[0-9]{4,5}\b", r"\1PORT", text)
    text = re.sub(r"(for|after) [0-9]+s\b", r"\1 Ns", text)
    return text.replace("|", "\\|").replace("<", "&lt;")
