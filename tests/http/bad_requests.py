"""Requests that must be refused, as one table. `test_bad_requests.py` judges every one of them in memory,
`tests/field/test_strictness.py` one of each row of the field log on sockets too.
"""

from __future__ import annotations

from collections.abc import Iterable

FULLWIDTH = "\uff15".encode()
ARABIC = "\u0665".encode()


def head(*lines: bytes, start: bytes = b"POST / HTTP/1.1", host: bytes = b"Host: app.ns\r\n") -> bytes:
    return start + b"\r\n" + host + b"".join(one + b"\r\n" for one in lines) + b"\r\n"


def lengths(*values: bytes) -> dict[str, bytes]:
    return {f"row13-length-{value!r}": head(b"Content-Length:" + value) + b"0123456789" for value in values}


HEADS: dict[str, bytes] = {
    **lengths(
        b" +1_0", b" +10", b" -48", b" -0", b" 1_0", b" 0x5", b" 0b1", b" 1e1", b" 5.0", b" 5 5", b" " + FULLWIDTH,
        b" " + ARABIC, b" 5\xa0", b" \x1f5", b" 5\x0b", b" " + b"9" * 20, b" " + b"0" * 30 + b"5", b" ", b" ,5", b" 5,",
        b" 5, 5", b" \xb2",
    ),
    "row14-cr-in-value": head(b"X: a\rTransfer-Encoding: chunked"),
    "row14-nul-in-value": head(b"X: a\0b"),
    "row14-mixed": head(b"X: v\n\0\rw"),
    "row14-cr-alone-as-end": b"POST / HTTP/1.1\rHost: app.ns\r\r\n\r\n",
    "row14-cr-before-crlf": head(b"X: a\r"),
    "row14-nul-in-name": head(b"X\0: a"),
    "row14-nul-in-target": head(start=b"POST /a\0b HTTP/1.1"),
    "row14-cr-in-target": head(start=b"POST /a\rb HTTP/1.1"),
    "row14-del": head(b"X: a\x7fb"),
    "row14-escape": head(b"X: a\x1b[31m"),
    "row14-vertical-tab": head(b"X: a\x0bb"),
    "row19-conflict": head(b"Content-Length: 1", b"Content-Length: 0") + b"Z",
    "row19-list": head(b"Content-Length: 5, 6") + b"hello!",
    "row19-zero-padded-differs": head(b"Content-Length: 5", b"Content-Length: 6") + b"hello!",
    "row19-three": head(b"Content-Length: 5", b"Content-Length: 5", b"Content-Length: 4") + b"hello",
    **{
        f"row20-{value!r}": head(b"Transfer-Encoding: " + value) + b"0\r\n\r\n"
        for value in (
            b",chunked", b"chunked,", b"chunked, chunked", b"identity", b"gzip", b"gzip, chunked", b"chunked, gzip",
            b"xchunked", b"chunked;q=1", b'"chunked"', b"chun ked", b"chunked\x0b", b"\xa0chunked", b"",
        )
    },
    "row20-two-lines": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "row20-two-lines-differ": head(b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "row20-http-1.0": head(b"Transfer-Encoding: chunked", start=b"POST / HTTP/1.0") + b"0\r\n\r\n",
    "row22-empty-name": head(b": x"),
    "row22-only-colon": head(b":"),
    "row22-no-colon": head(b"Content-Length 10"),
    "row22-name-only": head(b"Foo"),
    "row22-quoted-name": head(b'"Foo": x'),
    "row22-name-with-slash": head(b"Foo/Bar: x"),
    "row22-name-in-brackets": head(b"Content[Length]: 5"),
    "row23-space": head(b"Content-Length : 34"),
    "row23-tab": head(b"Content-Length\t: 34"),
    "row23-x85": head(b"Content-Length\x85: 10"),
    "row23-xa0": head(b"Content-Length\xa0: 10"),
    "row23-x1f": head(b"Content-Length\x1f: 10"),
    "row23-space-first": head(b" Content-Length: 10"),
    "row23-tab-first-line": head(b"\tX: 1", host=b"") ,
    "row23-fold": head(b"X: a", b" b"),
    "row23-fold-tab": head(b"X: a", b"\tTransfer-Encoding: chunked"),
    "row23-fold-of-length": head(b"Content-Length: 1", b" 0"),
    "row26-nul": head(host=b"Host: allowed\0.evil\r\n"),
    "row26-two": head(host=b"Host: a\r\nHost: b\r\n"),
    "row26-two-alike": head(host=b"Host: a\r\nHost: a\r\n"),
    "row26-two-cases": head(host=b"Host: a\r\nhOST: b\r\n"),
    "row26-list": head(host=b"Host: a,b\r\n"),
    "row26-userinfo": head(host=b"Host: user@app.ns\r\n"),
    "row26-password": head(host=b"Host: user:pw@app.ns\r\n"),
    "row26-none": head(host=b""),
    "row26-space": head(host=b"Host: a b\r\n"),
    "row26-path": head(host=b"Host: app.ns/x\r\n"),
    "row26-query": head(host=b"Host: app.ns?x\r\n"),
    "row26-two-ports": head(host=b"Host: app.ns:80:81\r\n"),
    "row26-port-name": head(host=b"Host: app.ns:http\r\n"),
    "row26-open-bracket": head(host=b"Host: [::1\r\n"),
    "row26-backslash": head(host=b"Host: app.ns\\evil\r\n"),
}  # fmt: skip
"""Heads that are refused with 400 wherever they occur; the connection is closed."""


CHUNKS: dict[str, bytes] = {
    **{
        f"row13-size-{size!r}": size + b"\r\nhello\r\n0\r\n\r\n"
        for size in (
            b"0_5", b"0x5", b"+5", b" 5", b"\t5", b"-5", b"-0", FULLWIDTH, ARABIC, b"", b"5g", b"5.", b"\xa05", b"5\x0b",
            b"5\0", b"f" * 16, b"0" * 40 + b"5", b"1" + b"0" * 16 + b"5", b"5,5", b"5 5", b"h",
        )
    },
    "row16-lf-in-extension": b"5;\nxx\r\nhello\r\n0\r\n\r\n",
    "row16-cr-in-extension": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "row16-crs": b"5\r\r;a\r\nhello\r\n0\r\n\r\n",
    "row16-nul": b"5;a=\0\r\nhello\r\n0\r\n\r\n",
    "row16-lf-then-crlf": b"5;a\n\r\nhello\r\n0\r\n\r\n",
    "row16-no-semicolon": b"5 a=b\r\nhello\r\n0\r\n\r\n",
    "row16-long": b"5;" + b"a" * 5000 + b"\r\nhello\r\n0\r\n\r\n",
    "row16-many": b"".join(b"1;%b\r\nx\r\n" % (b"a" * 3000) for _ in range(6)) + b"0\r\n\r\n",
    "row17-size-lf": b"5\nhello\r\n0\r\n\r\n",
    "row17-data-lf": b"a\r\n0123456789\n0\r\n\r\n",
    "row17-last-lf": b"5\r\nhello\r\n0\n\r\n",
    "row17-end-lf": b"5\r\nhello\r\n0\r\n\nGET / HTTP/1.1\r\nHost: app.ns\r\n\r\n",
    "row17-data-cr": b"5\r\nhello\r0\r\n\r\n",
    "row17-data-too-long": b"5\r\nhello!\r\n0\r\n\r\n",
    "row17-no-end-of-data": b"5\r\nhello0\r\n\r\n",
    "row17-trailer-lf": b"5\r\nhello\r\n0\r\nX: 1\nY: 2\r\n\r\n",
    "row22-trailer-without-colon": b"5\r\nhello\r\n0\r\nX\r\n\r\n",
    "row23-trailer-space": b"5\r\nhello\r\n0\r\nX : 1\r\n\r\n",
    "row14-trailer-nul": b"5\r\nhello\r\n0\r\nX: \0\r\n\r\n",
    "row14-trailer-cr": b"5\r\nhello\r\n0\r\nX: a\rY: b\r\n\r\n",
    "row16-trailers-long": b"0\r\n" + b"X: %b\r\n" % (b"a" * 1000) * 70 + b"\r\n",
}  # fmt: skip
"""Bodies that are refused with 400 before the app has seen their end; the connection is closed."""


def one_of_each_row(cases: Iterable[str]) -> list[str]:
    """The first case of each row of the field log; cases are called `rowN-…`."""
    first: dict[str, str] = {}
    for case in cases:
        first.setdefault(case.partition("-")[0], case)
    return list(first.values())
