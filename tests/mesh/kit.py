"""What the control plane's tests share: manifests in a few lines, a served mesh, and a client that asks it questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from proxy.api.services import Method
from proxy.core.address.addr import Addr
from proxy.mesh.answers.topics import Topics
from proxy.mesh.answers.work import OnLoop
from proxy.mesh.identity.root.keys import open_keys
from proxy.mesh.kinds.catalog import CATALOG
from proxy.mesh.serve import Served, Settings, keep, start
from proxy.mesh.server.callers import Callers
from proxy.mesh.server.probing import Probing
from proxy.mesh.server.rpc import Feed
from proxy.mesh.state import State
from proxy.mesh.store.manifests import Manifests
from proxy.mesh.store.snapshot import Snapshot

WEB = "web.default.serviceaccount.identity.linkerd.cluster.local"

SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.10
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
"""


def workload(name: str, port: int, *, ip: str = "127.0.0.1", annotations: str = "") -> str:
    return f"""\
---
apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata: {{name: {name}, labels: {{app: web}}, annotations: {{{annotations}}}}}
spec:
  meshTLS: {{identity: {WEB}, serverName: {WEB}}}
  workloadIPs: [{{ip: {ip}}}]
  ports: [{{name: http, port: {port}}}]
"""


class Asker:
    """A client of one running control plane."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    def stream(self, method: Method[Any, Any], request: Message, timeout_s: float = 10) -> Any:
        call: Callable[..., Any] = self._channel.unary_stream(
            method.path, lambda message: message.SerializeToString(), method.response.FromString
        )
        return call(request, timeout=timeout_s)

    async def first(self, method: Method[Any, Any], request: Message) -> dict[str, Any]:
        stream = self.stream(method, request)
        message = await stream.read()
        stream.cancel()
        found: dict[str, Any] = readable(message)
        return found

    async def refusal(self, method: Method[Any, Any], request: Message) -> tuple[str, str]:
        """The status that ends a stream, or a call, at once."""
        call: Any = self.stream(method, request) if method.is_stream else self.call(method, request)
        try:
            await (call.read() if method.is_stream else call)
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
        raise AssertionError("it was not refused")

    def call(self, method: Method[Any, Any], request: Message) -> Any:
        call: Callable[..., Any] = self._channel.unary_unary(
            method.path, lambda message: message.SerializeToString(), method.response.FromString
        )
        return call(request, timeout=10)


class Mesh:
    def __init__(self, directory: Path, settings: Settings, topics: Topics, served: Served, ask: Asker) -> None:
        self.directory = directory
        self.settings = settings
        self.topics = topics
        self.feed: Feed = served.feed
        self.callers: Callers = served.callers
        self.probing: Probing = served.probing
        self.ask = ask

    def write(self, text: str, file: str = "mesh.yaml") -> None:
        (self.directory / file).write_text(text)

    async def until(self, is_so: Callable[[Snapshot], bool]) -> None:
        await until(lambda: is_so(self.topics.snapshot))


@asynccontextmanager
async def mesh(directory: Path, text: str = SERVICE, port: int = 0) -> AsyncIterator[Mesh]:
    """A control plane in this process that follows `directory`/manifests."""
    manifests = directory / "manifests"
    manifests.mkdir(exist_ok=True)
    (manifests / "mesh.yaml").write_text(text)
    settings = Settings(manifests, State(directory / "state"), Addr("127.0.0.1", port))
    followed = Manifests(manifests, CATALOG, settings.rules)
    topics = Topics(await followed.open(), work=OnLoop())
    keys = open_keys(settings.state)
    served = await start(settings, topics, keys)
    stop = asyncio.Event()
    following = asyncio.gather(followed.follow(topics.apply, stop), keep(served, keys).run(stop))
    async with grpc.aio.insecure_channel(str(served.addr)) as channel:
        try:
            yield Mesh(manifests, settings._replace(addr=served.addr), topics, served, Asker(channel))
        finally:
            stop.set()
            await following
            await served.stop(0)


async def until(is_so: Callable[[], bool], deadline_s: float = 10.0) -> None:
    """Wait for a condition; AssertionError at the deadline."""
    async with asyncio.timeout(deadline_s):
        while not is_so():
            await asyncio.sleep(0.01)


async def within(awaitable: Awaitable[Any], deadline_s: float = 10.0) -> Any:
    return await asyncio.wait_for(awaitable, deadline_s)


def readable(message: Message) -> Any:
    """A message with the .proto file's field names, and with addresses as text, as in the recordings."""
    return _text_ips(MessageToDict(message, preserving_proto_field_name=True))


def _text_ips(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"ipv4"} and isinstance(value["ipv4"], int):
            return {"ipv4": str(IPv4Address(value["ipv4"]))}
        return {key: _text_ips(item) for key, item in value.items()}
    return [_text_ips(item) for item in value] if isinstance(value, list) else value
