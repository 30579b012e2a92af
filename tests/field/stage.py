"""Stage: one way from clients to an app, and what may differ there from the direct run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from proxy.core.address.addr import Addr
from proxy.policy.client import FailureAccrual, Retry, Timeouts
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
        """Whether both proxies are on the way: then HTTP/1 travels inside HTTP/2, where names have no case."""
        self.app: App
        self.where: Addr
        self._stack = ExitStack()

    def rule(
        self, retry: Retry | None = None, timeouts: Timeouts | None = None, accrual: FailureAccrual | None = None
    ) -> None:
        """What the client's policy says of the app that is played next."""
        self.topology.retry = retry
        self.topology.timeouts = timeouts or Timeouts()
        self.topology.accrual = accrual

    def play(self, script: Script, http2: Http2Params = NO_PARAMS) -> App:
        """Start an app with this script; `connect` reaches it from then on."""
        self.app = self._stack.enter_context(App(script))
        self.where = self._stack.enter_context(self.topology.way(self.way, self.app.port, http2))
        return self.app

    def answers(self, answer: bytes | Callable[[Message], bytes] = OK) -> Answering:
        """Start an app that answers every request with this; its `requests` are kept."""
        script = Answering(answer)
        self.play(script)
        return script

    def connect(self) -> Peer:
        return self._stack.enter_context(Peer.connect(self.where))

    def connect_as_peer(self) -> Peer:
        """Connect as another proxy of the mesh does, for the way IN."""
        return self._stack.enter_context(Peer.connect(self.where, credentials(CLIENT).client_context(False)))

    def close(self) -> None:
        self.rule()
        self._stack.close()


def seen(
    message: Message, lowers: bool = True
) -> tuple[bytes, list[tuple[bytes, bytes]], bytes, list[tuple[bytes, bytes]]]:
    """A message in the form in which two runs are compared: without fields that proxies add (`l5d-client-id`, `date`),
    with names in lower case if `lowers`, and with `transfer-encoding` at the end, because only its framing matters.
    """
    added = (b"l5d-client-id", b"date", b"transfer-encoding")
    fields = [(name.lower() if lowers else name, value) for name, value in message.fields if name.lower() not in added]
    trailers = [(name.lower() if lowers else name, value) for name, value in message.trailers]
    return message.start, [(b":framing", message.framing.encode()), *fields], message.body, trailers
