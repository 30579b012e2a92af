"""Open loop: requests leave by the clock over ten HTTP/1.1 connections, and the time that they wait counts.

A request's time runs from when it was due, not from when a connection was free for it, so a proxy that stalls is
charged for all requests that were due meanwhile. `python -m bench.paced_load PORT HOST RATE SECONDS` prints one
JSON object.
"""

from __future__ import annotations

import json
import selectors
import sys
import time
from collections import deque

from bench.tcp_load import connect

CONNECTIONS = 10


class Lane:
    """One connection: one request under way, the due times of those that wait for it."""

    def __init__(self, port: int, request: bytes) -> None:
        self.sock = connect(port, "")
        self.sock.setblocking(False)
        self._request = request
        self._waiting: deque[float] = deque()
        self._due_at = 0.0
        self._answer = b""

    def due(self, at: float) -> None:
        if self._due_at:
            self._waiting.append(at)
        else:
            self._send(at)

    def _send(self, due_at: float) -> None:
        self._due_at = due_at
        self._answer = b""
        self.sock.send(self._request)

    def read(self, now: float) -> tuple[float, bool] | None:
        """(seconds since due, whether it was a 200) when an answer is complete."""
        data = self.sock.recv(65536)
        if not data:
            raise SystemExit("the connection was closed")
        self._answer += data
        head, mark, body = self._answer.partition(b"\r\n\r\n")
        if not mark or len(body) < _length(head):
            return None
        took_s, is_good = now - self._due_at, head.startswith(b"HTTP/1.1 200 ")
        self._due_at = 0.0
        if self._waiting:
            self._send(self._waiting.popleft())
        return took_s, is_good


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    raise SystemExit(f"an answer without content-length: {head!r}")


def paced(port: int, host: str, rate: int, seconds: float) -> dict[str, float]:
    request = f"GET / HTTP/1.1\r\nHost: {host or '127.0.0.1'}\r\nUser-Agent: paced\r\nAccept: */*\r\n\r\n".encode()
    lanes = [Lane(port, request) for _ in range(CONNECTIONS)]
    selector = selectors.EpollSelector()
    for lane in lanes:
        selector.register(lane.sock, selectors.EVENT_READ, lane)
    times: list[float] = []
    bad = sent = 0
    total = int(rate * seconds)
    start = time.perf_counter()
    while len(times) < total:
        now = time.perf_counter()
        while sent < total and start + sent / rate <= now:
            lanes[sent % CONNECTIONS].due(start + sent / rate)
            sent += 1
        wait_s = start + sent / rate - now if sent < total else 5.0
        for key, _ in selector.select(max(0.0, wait_s)):
            done = key.data.read(time.perf_counter())
            if done is not None:
                times.append(done[0])
                bad += not done[1]
        if time.perf_counter() - start > seconds + 20:
            raise SystemExit(f"{total - len(times)} of {total} requests were never answered")
    took_s = time.perf_counter() - start
    times.sort()
    at = {
        name: times[min(total - 1, int(total * q))] * 1000
        for name, q in (("p50_ms", 0.5), ("p99_ms", 0.99), ("p999_ms", 0.999))
    }
    return {"done": total, "seconds": took_s, "bad": bad, **at}


if __name__ == "__main__":
    print(json.dumps(paced(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
