"""Reduces an answer of the proxy to what Linkerd's proxy would send: the rest is our explanation, and is removed."""

from __future__ import annotations

from collections.abc import Iterable


def as_linkerds(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The fields, sorted, without the body's type and length and without the explanation behind Linkerd's text in a
    gRPC message.
    """
    left = dict(headers)
    assert left.pop("content-type", "") in ("text/plain", "application/grpc"), "ours is plain text"
    left["content-length"] = "0"
    if "grpc-message" in left:
        left["grpc-message"] = left["grpc-message"].partition("; ")[0]
        left["content-type"] = "application/grpc"
    return sorted(left.items())


def head_as_linkerds(answer: str) -> str:
    """The same for a whole HTTP/1 answer, with a body that must be an explanation."""
    head, _, body = answer.partition("\r\n\r\n")
    lines = head.split("\r\n")
    assert "content-type: text/plain" in [line.lower() for line in lines]
    assert f"content-length: {len(body.encode())}" in [line.lower() for line in lines]
    assert body.endswith("\n") and "answered by the " in body.partition("\n")[0]
    kept = [line for line in lines if not line.lower().startswith(("content-type:", "content-length:"))]
    return "\r\n".join([*kept, "content-length: 0"]) + "\r\n\r\n"
