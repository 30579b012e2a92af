"""A scripted upstream: one thread per connection, each running the test's script. It keeps what the threads saw, in
order.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from tests.kit.http1 import OK, Message, without_body
from tests.kit.topology import until
from tests.kit.wire import DEADLINE_S, Ended, Peer

Script = Callable[[Peer], None]


class App:
    """`connections` are in the order in which they came. The script may raise Ended, TimeoutError or OSError, for a
    connection that was ended or given up; any other exception is a fault of the test, which `check` raises.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.connections: list[Peer] = []
        self.faults: list[BaseException] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            peer = Peer(sock)
            self.connections.append(peer)
            thread = threading.Thread(target=self._serve, args=(peer,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: Peer) -> None:
        try:
            self.script(peer)
        except (Ended, OSError):
            pass
        except BaseException as fault:
            self.faults.append(fault)
        finally:
            peer.close()

    def stop(self) -> None:
        """Stop listening; connections go on."""
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
        self._listener.close()
        self._thread.join(DEADLINE_S)

    def restart(self, script: Script) -> None:
        """Listen again, on the same port."""
        self.stop()
        self.script = script
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=512)
        self._thread = threading.Thread(target=self._accept, args=(self._listener,), daemon=True)
        self._thread.start()

    def connection(self, index: int = 0) -> Peer:
        """This connection; waits until it has come."""
        until(lambda: len(self.connections) > index, f"connection {index} reaches the app")
        return self.connections[index]

    @property
    def saw(self) -> bytes:
        return b"".join(one.received for one in self.connections)

    def __enter__(self) -> App:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.stop()
        for peer in self.connections:
            try:
                peer.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(DEADLINE_S)
        if kind is None and self.faults:
            raise AssertionError("the app's script failed") from self.faults[0]


class Answering:
    """A script: reads whole requests strictly by their framing and answers each with `answer(request)`."""

    def __init__(self, answer: bytes | Callable[[Message], bytes] = OK) -> None:
        self.requests: list[Message] = []
        self._answer = answer

    def __call__(self, peer: Peer) -> None:
        while True:
            request = peer.request()
            self.requests.append(request)
            answer = self._answer if isinstance(self._answer, bytes) else self._answer(request)
            peer.send(without_body(answer) if request.method == b"HEAD" else answer)
            if request.is_last:
                return
