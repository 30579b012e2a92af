"""HTTP/2 clients and carried HTTP/1 against a peer that the test plays frame by frame, compared with recordings of the
real proxy.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from proxy.balance.endpoints import reset
from proxy.config import Config
from proxy.core.address.addr import Addr
from proxy.core.watch import Watch
from proxy.http.h2.frames import frame
from proxy.outbound.http.endpoint import settings_of
from proxy.policy.client import HTTP_2
from proxy.policy.endpoint import HINT_H2, EndpointMeta, Http2Params
from tests.kit.explained import head_as_linkerds
from tests.kit.http1 import DEADLINE_S
from tests.kit.network import Network, balance_policy, config
from tests.kit.sockets import Ticking, run

WEB = "web.ns.svc.cluster.local:80"
DST = Addr("10.43.0.7", 80)
GET = b"GET /x HTTP/1.1\r\nHost: web\r\n\r\n"
GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[2] / "data" / "outbound-to-peer.json").read_text())
RESETS = sorted(int(name[6:]) for name in GOLDEN if name.startswith("reset-"))
HEADERS, RST_STREAM, SETTINGS = 1, 3, 4


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    """(type, flags, stream, payload)"""
    head = await asyncio.wait_for(reader.readexactly(9), DEADLINE_S)
    payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
    return head[3], head[4], int.from_bytes(head[5:9], "big"), payload


def resetting(code: int) -> Any:
    """A peer that resets every request with this code."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(frame.PREFACE))
        writer.write(b"\0\0\0\x04\0\0\0\0\0")
        try:
            while True:
                kind, flags, stream, _ = await read_frame(reader)
                if kind == SETTINGS and not flags & 1:
                    writer.write(b"\0\0\0\x04\x01\0\0\0\0")
                elif kind == HEADERS:
                    writer.write(b"\0\0\x04\x03\0" + stream.to_bytes(4, "big") + code.to_bytes(4, "big"))
        except asyncio.IncompleteReadError:
            writer.close()

    return serve


@pytest.mark.parametrize("code", RESETS)
def test_a_reset_of_the_peer_becomes_502_for_http_1(code: int) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(resetting(code))
        network.fake.policies[DST] = Watch(balance_policy())
        network.fake.names[WEB] = Watch(reset({server: EndpointMeta(hint=HINT_H2)}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(GET)
        answer = (await asyncio.wait_for(reader.read(), DEADLINE_S)).decode()
        expected = GOLDEN[f"reset-{code}"]["http1"].removesuffix("<FIN>").replace("10.42.0.32:8080", str(server))
        got, wanted = head_as_linkerds(answer).split("\r\n"), expected.split("\r\n")
        assert got[0] == wanted[0]
        assert sorted(line.lower() for line in got if not line.startswith("date:")) == sorted(
            line.lower() for line in wanted if not line.startswith("date:")
        )
        writer.close()
        network.close()

    run(story)


@pytest.mark.parametrize("code", RESETS)
def test_a_reset_of_the_peer_reaches_an_http_2_client_with_its_code(code: int) -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        server = await network.server(resetting(code))
        network.fake.policies[DST] = Watch(balance_policy(protocol=HTTP_2))
        network.fake.names[WEB] = Watch(reset({server: EndpointMeta()}))
        network.start()
        reader, writer = await asyncio.open_connection(sock=network.redirect(DST))
        # GET http://web/ by indexed fields and one literal (RFC 7541 appendix A).
        block = b"\x82\x86\x84\x41\x03web"
        writer.write(
            frame.PREFACE + b"\0\0\0\x04\0\0\0\0\0" + len(block).to_bytes(3, "big") + b"\x01\x05\0\0\0\x01" + block
        )
        while True:
            kind, flags, stream, payload = await read_frame(reader)
            assert kind != HEADERS
            if kind == SETTINGS and not flags & 1:
                writer.write(b"\0\0\0\x04\x01\0\0\0\0")
            if kind == RST_STREAM:
                break
        assert stream == 1 and int.from_bytes(payload, "big") == GOLDEN[f"reset-{code}"]["http2"]["reset"]
        assert 'classification="failure",grpc_status="",error="h2(' in network.metrics()
        writer.close()
        network.close()

    run(story)


def test_what_a_peer_is_told_first_is_what_was_recorded() -> None:
    async def story(ticking: Ticking) -> None:
        network = Network(ticking)
        frames: list[tuple[int, int, int, bytes]] = []
        done = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.readexactly(len(frame.PREFACE)) == frame.PREFACE
            while len(frames) < 3:
                frames.append(await read_frame(reader))
            done.set()
            writer.close()

        network.fake.policies[DST] = Watch(balance_policy())
        network.fake.names[WEB] = Watch(reset({await network.server(serve): EndpointMeta(hint=HINT_H2)}))
        network.start()
        _, writer = await asyncio.open_connection(sock=network.redirect(DST))
        writer.write(GET)
        await asyncio.wait_for(done.wait(), DEADLINE_S)
        recorded = GOLDEN["http1"]["sessions"][0]["frames"]
        settings = {
            int.from_bytes(frames[0][3][place : place + 2], "big"): int.from_bytes(
                frames[0][3][place + 2 : place + 6], "big"
            )
            for place in range(0, len(frames[0][3]), 6)
        }
        wanted = {int(name): value for name, value in recorded[1]["settings"].items()}
        wanted[6] = 65536  # ours announce more, on purpose
        assert frames[0][:3] == (SETTINGS, 0, 0) and settings == wanted
        assert frames[1][0] == 8 and int.from_bytes(frames[1][3], "big") == recorded[2]["increment"]
        assert frames[2][0] == HEADERS and frames[2][1] == recorded[3]["flags"]
        writer.close()
        network.close()

    run(story)


def test_http_2_parameters_of_discovery() -> None:
    given: Config = config()
    default = settings_of(given, Http2Params())
    assert (default.stream_window_bytes, default.connection_window_bytes) == (65535, 1 << 20)
    assert default.keepalive_interval_s is None
    assert settings_of(given, Http2Params(stream_window_bytes=9999)) == default, "a window counts only with the other"
    both = settings_of(given, Http2Params(stream_window_bytes=100_000, connection_window_bytes=200_000))
    assert (both.stream_window_bytes, both.connection_window_bytes) == (100_000, 200_000)
    assert settings_of(given, Http2Params(100_000, 200_000, is_adaptive=True)) == default
    assert settings_of(given, Http2Params(keep_alive_interval_s=5.0)) == default
    alive = settings_of(given, Http2Params(keep_alive_interval_s=5.0, keep_alive_timeout_s=2.0, max_frame_bytes=32768))
    assert (alive.keepalive_interval_s, alive.keepalive_timeout_s, alive.keepalive_while_idle) == (5.0, 2.0, False)
    assert alive.max_frame_bytes == 32768
