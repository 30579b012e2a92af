"""Opaque TCP loads: 64-byte ping-pong over a few connections, bulk one way, connection churn.

Run as a process of its own on the load's core (`python -m bench.tcp_load KIND ...`), so that it is pinned like
wrk and h2load; it prints one JSON object.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time

MESSAGE = b"p" * 64


def connect(port: int, connect_to: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port), 10)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if connect_to:
        made.sendall(f"CONNECT {connect_to} HTTP/1.1\r\nHost: {connect_to}\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = made.recv(1)
            if not piece:
                raise SystemExit(f"CONNECT was answered: {answer!r}")
            answer += piece
        if b" 200 " not in answer.split(b"\r\n")[0]:
            raise SystemExit(f"CONNECT was answered: {answer!r}")
    return made


def ping_pong(port: int, connect_to: str, connections: int, seconds: float) -> dict[str, float]:
    selector = selectors.EpollSelector()
    sent_at: dict[socket.socket, float] = {}
    for _ in range(connections):
        made = connect(port, connect_to)
        made.sendall(b"E")
        made.setblocking(False)
        selector.register(made, selectors.EVENT_READ)
    times: list[float] = []
    now = start = time.perf_counter()
    for key in list(selector.get_map().values()):
        made = key.fileobj  # type: ignore[assignment]
        sent_at[made] = now
        made.send(MESSAGE)
    missing = dict.fromkeys(sent_at, len(MESSAGE))
    while now - start < seconds:
        for key, _ in selector.select(1.0):
            made = key.fileobj  # type: ignore[assignment]
            data = made.recv(4096)
            if not data:
                raise SystemExit("the connection was closed")
            missing[made] -= len(data)
            if missing[made] <= 0:
                now = time.perf_counter()
                times.append(now - sent_at[made])
                sent_at[made] = now
                missing[made] = len(MESSAGE)
                made.send(MESSAGE)
        now = time.perf_counter()
    times.sort()
    at = {name: times[min(len(times) - 1, int(len(times) * q))] * 1000 for name, q in _QUANTILES.items()}
    return {"done": len(times), "seconds": now - start, "bad": 0, **at}


_QUANTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}


def bulk(port: int, connect_to: str, size: int) -> dict[str, float]:
    made = connect(port, connect_to)
    made.settimeout(60)
    buffer = bytearray(1 << 20)
    start = time.perf_counter()
    made.sendall(b"S%08x" % size)
    got = 0
    while count := made.recv_into(buffer):
        got += count
    return {"done": got, "seconds": time.perf_counter() - start, "bad": int(got != size)}


def churn(port: int, connect_to: str, seconds: float) -> dict[str, float]:
    done = 0
    now = start = time.perf_counter()
    while now - start < seconds:
        with connect(port, connect_to) as made:
            made.sendall(b"E" + MESSAGE)
            got = 0
            while got < len(MESSAGE):
                piece = made.recv(4096)
                if not piece:
                    raise SystemExit("the connection was closed")
                got += len(piece)
        done += 1
        now = time.perf_counter()
    return {"done": done, "seconds": now - start, "bad": 0}


def main() -> None:
    kind, port, connect_to, *rest = sys.argv[1:]
    if kind == "ping-pong":
        found = ping_pong(int(port), connect_to, int(rest[0]), float(rest[1]))
    elif kind == "bulk":
        found = bulk(int(port), connect_to, int(rest[0]))
    else:
        found = churn(int(port), connect_to, float(rest[0]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
