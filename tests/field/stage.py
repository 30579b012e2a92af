"""Stage: one way from clients to an app, and what may look different there from the direct run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from proxy.core.addr import Addr
from proxy.policy.endpoint import Http2Params
from tests.kit.app import Answering, App, Script
from tests.kit.certificates import credentials
from tests.kit.http1 import OK, Message
from tests.kit.topology import CLIENT, DIRECT, NO_PARAMS, PAIR, Topology
from tests.kit.wire import Peer


class Stage:
    def __init__(self, topology: Topology, way: str) -> None:
        self.topology = topology
        self.way = way
        self.is_direct = way == DIRECT
        self.is_pair = way == PAIR
        """HTTP/1 travels inside HTTP/2, which knows no case of names."""
        self.app: App
        self.where: Addr
        self._stack = ExitStack()

    def play(self, script: Script, http2: Http2Params = NO_PARAMS) -> App:
        """Put up an app; `connect` reaches it from then on."""
        self.app = self._stack.enter_context(App(script))
        self.where = self._stack.enter_context(self.topology.way(self.way, self.app.port, http2))
        return self.app

    def answers(self, answer: bytes | Callable[[Message], bytes] = OK) -> Answering:
        """An app that answers every request so; its `requests` are kept."""
        script = Answering(answer)
        self.play(script)
        return script

    def connect(self) -> Peer:
        return self._stack.enter_context(Peer.connect(self.where))

    def connect_as_peer(self) -> Peer:
        """As another proxy of the mesh does, for the way IN."""
        return self._stack.enter_context(Peer.connect(self.where, credentials(CLIENT).client_context(False)))

    def close(self) -> None:
        self._stack.close()


def seen(
    message: Message, lowers: bool = True
) -> tuple[bytes, list[tuple[bytes, bytes]], bytes, list[tuple[bytes, bytes]]]:
    """A message as two runs are compared: without what proxies add (`l5d-client-id`, `date`), names in lower case, and
    `transfer-encoding`, which moves to the end, as what it says of the framing."""
    added = (b"l5d-client-id", b"date", b"transfer-encoding")
    fields = [(name.lower() if lowers else name, value) for name, value in message.fields if name.lower() not in added]
    trailers = [(name.lower() if lowers else name, value) for name, value in message.trailers]
    return message.start, [(b":framing", message.framing.encode()), *fields], message.body, trailers
