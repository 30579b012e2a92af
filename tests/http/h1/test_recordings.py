"""57 raw requests that were recorded between the two sidecars of a real mesh, replayed through our two HTTP/1 codecs
(tests/data/http1-pair.json).
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from proxy.http.exchange import Exchange
from proxy.http.head import ResponseHead
from proxy.http.headers import field
from tests.kit import splits
from tests.kit.compare import MEANT_IN_PAIR, masked, pair_cases, pair_differences
from tests.kit.pair import Pair, serve
from tests.kit.recorded_app import REPLIES

CASES = pair_cases()
CLIENT = b"client.bench.serviceaccount.identity.linkerd.cluster.local"

NOT_DETECTED = {"http12", "http20-line", "not-http"}
"""Requests whose first bytes are not HTTP/1, so that no codec sees them."""

ALONE = re.compile(MEANT_IN_PAIR.pattern + "|answer-e500/client_got/start")
"""With one hop the app's own reason phrase is kept, which HTTP/2 between two proxies cannot carry."""


class Mesh:
    """What the stages around the codecs do with the fields of the mesh."""

    def edit(self, exchange: Exchange) -> None:
        kept = [one for one in exchange.request.fields if one.name not in (b"l5d-client-id", b"l5d-orig-proto")]
        exchange.request = exchange.request.with_fields([*kept, field(b"l5d-client-id", CLIENT)])
        exchange.editor = self

    def edit_response(self, exchange: Exchange, head: ResponseHead) -> ResponseHead:
        return head.with_fields([one for one in head.fields if not one.name.startswith(b"l5d-proxy-")])


def play(parts: list[bytes]) -> tuple[dict[str, Any], Pair]:
    pair = Pair()
    pair.stage.edit = Mesh().edit
    seen: list[bytes] = []
    for part in parts:
        assert pair.wire.codec is not None
        pair.wire.codec.feed(part)
    seen += serve(pair, REPLIES)
    got = {"app_saw": [masked(one) for one in seen], "client_got": masked(pair.wire.take()) + pair.wire.mark()}
    return got, pair


@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_DETECTED])
def test_like_the_recording(name: str) -> None:
    got, _ = play([CASES[name]["sent"]])
    wrong = pair_differences(name, CASES[name], got, ALONE)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if n not in NOT_DETECTED and len(case["sent"]) < 2000])
def test_cut_anyhow_it_is_the_same(name: str) -> None:
    whole, _ = play([CASES[name]["sent"]])
    for parts in splits(CASES[name]["sent"]):
        got, _ = play(parts)
        assert not pair_differences(name, whole, got, re.compile("$-")), parts


def start_of(name: str) -> tuple[str, str, list[str]]:
    got, _ = play([CASES[name]["sent"]])
    return got["client_got"], got["client_got"].partition("\r\n")[0], got["app_saw"]


@pytest.mark.parametrize("name", ["two-hosts", "host-with-userinfo", "http11-no-host", "te-twice", "cl-and-te"])
def test_doubtful_requests_are_refused_and_reach_nobody(name: str) -> None:
    got, first, seen = start_of(name)
    assert first == "HTTP/1.1 400 Bad Request" and got.endswith("<FIN>") and not seen


def test_a_bad_chunk_is_the_clients_fault_and_named() -> None:
    got, first, seen = start_of("bad-chunk")
    assert first == "HTTP/1.1 400 Bad Request" and "l5d-proxy-error: bad chunk size\r\n" in got
    assert got.endswith("<FIN>") and not seen


@pytest.mark.parametrize("name", ["many-headers", "long-header"])
def test_heads_of_a_modest_size_pass(name: str) -> None:
    _, first, seen = start_of(name)
    assert first == "HTTP/1.1 200 OK"
    assert seen[0].startswith(CASES[name]["sent"].decode("latin-1")[:-2])


def test_heads_beyond_our_limit_get_431() -> None:
    got, first, _ = start_of("huge-header")
    assert first == "HTTP/1.1 431 Request Header Fields Too Large" and got.endswith("<FIN>")


def test_every_informational_response_is_forwarded() -> None:
    got, _, _ = start_of("answer-early-hints")
    assert got.startswith("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n")


def test_trailers_are_forwarded() -> None:
    got, _, _ = start_of("answer-chunked")
    assert got.endswith("3\r\nabc\r\n0\r\nX-T: v\r\n\r\n<OPEN>")


def test_304_keeps_its_content_length() -> None:
    got, _, _ = start_of("answer-304")
    assert "\r\nContent-Length: 55\r\n" in got and got.endswith("\r\n\r\n<OPEN>")


def test_transfer_encoding_wins_over_content_length_in_a_response() -> None:
    got, pair = play([CASES["answer-te-cl"]["sent"]])
    assert "Content-Length" not in got["client_got"] and "Transfer-Encoding: chunked" in got["client_got"]
    assert "2\r\nok\r\n0\r\n\r\n<OPEN>" in got["client_got"]
    assert pair.wires[0].is_over, "the app's connection must not be used again"


def test_nobody_says_100_but_the_app() -> None:
    got, first, seen = start_of("expect")
    assert first == "HTTP/1.1 200 OK" and "\r\nExpect: 100-continue\r\n" in seen[0] and "100 Continue" not in got


def test_hop_by_hop_fields_go_but_for_te_trailers() -> None:
    got, _, seen = start_of("hop-by-hop")
    assert (
        "X-Foo" not in seen[0]
        and "keep-alive" not in seen[0].lower()
        and "TE: trailers\r\nConnection: TE\r\n" in seen[0]
    )
    assert "Connection: close\r\n" in got and got.endswith("<FIN>")


@pytest.mark.parametrize("name", ["answer-closed", "answer-nothttp", "answer-badhead"])
def test_an_app_that_fails_is_a_502_and_the_client_stays(name: str) -> None:
    got, first, _ = start_of(name)
    assert first == "HTTP/1.1 502 Bad Gateway" and got.endswith("<OPEN>")


@pytest.mark.parametrize(("name", "status"), [("http12", 505), ("http20-line", 505), ("not-http", 400)])
def test_other_versions_on_a_connection_that_spoke_http(name: str, status: int) -> None:
    got, _ = play([CASES["get"]["sent"], CASES[name]["sent"]])
    assert f"HTTP/1.1 {status} " in got["client_got"] and got["client_got"].endswith("<FIN>")
    assert len(got["app_saw"]) == 1


def test_names_keep_their_case_and_place_between_http1_and_http1() -> None:
    sent = b"GET /x HTTP/1.1\r\nX-MiXeD: 1\r\nHOST:  svc:81 \r\nx-mixed:2\r\n\r\n"
    pair = Pair()
    pair.server.feed(sent)
    assert pair.wires[0].take() == sent
