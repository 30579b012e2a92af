"""The application of the recordings: it answers by path and keeps the bytes of each request, on blocking sockets."""

from __future__ import annotations

import socket
import struct

from tests.kit.http1 import Message, without_body
from tests.kit.pair import CLOSE, RESET
from tests.kit.wire import Ended, Peer

USUAL = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nX-App: 1\r\n\r\nok"

REPLIES = {
    b"/e500": b"HTTP/1.1 500 Oops Mine\r\nContent-Length: 3\r\nL5d-Proxy-Error: forged\r\nl5d-proxy-connection: close\r\n\r\nbad",
    b"/chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-t\r\n\r\n3;ext=1\r\nabc\r\n0\r\nX-T: v\r\n\r\n"
    ),
    b"/close-delimited": b"HTTP/1.0 200 OK\r\nContent-Type: a/b\r\n\r\ntill the end",
    b"/early-hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
    b"/204": b"HTTP/1.1 204 No Content\r\n\r\n",
    b"/304": b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 55\r\n\r\n",
    b"/hop": (
        b"HTTP/1.1 200 OK\r\nConnection: x-hop, close\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: a\r\n"
        b"Content-Length: 2\r\n\r\nok"
    ),
    b"/upgrade": b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n",
    b"/two-cl": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
    b"/te-cl": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
    b"/set-cookies": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 2\r\n\r\nok",
    b"/badhead": b"HTTP/1.1 200 OK\r\nBad Header: x\r\nContent-Length: 2\r\n\r\nok",
    b"/nothttp": b"not http at all\r\n\r\n",
    b"/closed": CLOSE,
    b"/rst": RESET,
}


class RecordedApp:
    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def handle(self, accepted: socket.socket) -> None:
        """Serve one connection until its client, or an answer, ends it."""
        peer = Peer(accepted)
        accepted.settimeout(30)
        try:
            while True:
                request = peer.request()
                self.seen.append(request.raw)
                if not _answer(accepted, request):
                    return
        except Ended:
            pass


def _answer(accepted: socket.socket, request: Message) -> bool:
    """Answer one request. Returns whether the connection goes on."""
    reply = REPLIES.get(request.target.partition(b"?")[0], USUAL)
    if reply in (CLOSE, RESET):
        if reply == RESET:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
    if request.method == b"HEAD":
        reply = without_body(reply)
    accepted.sendall(reply)
    if reply.startswith(b"HTTP/1.1 101") or request.method == b"CONNECT":
        while data := accepted.recv(65536):
            accepted.sendall(data)
        return False
    return b"connection: close" not in reply.lower() and b", close" not in reply and not reply.startswith(b"HTTP/1.0")
