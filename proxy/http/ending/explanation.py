"""Explanation: what an answer of the proxy's own says to the person behind the client.

Linkerd's answers have no bodies, and the reason in `l5d-proxy-error`, which stays as it is. Ours have a few lines of plain
text beside it, or, for gRPC, the same in `grpc-message`: who made the answer, what failed, why, since when, and where to look.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from proxy.core.printable import printable
from proxy.http.ending.replies import is_grpc
from proxy.http.head import RequestHead, ResponseHead
from proxy.http.headers import PLAIN, Field, field

_TEXT_TYPE: Final = field(b"content-type", b"text/plain")
_LENGTH: Final = b"content-length"
_MESSAGE: Final = b"grpc-message"
_AUTHORITY_CHARS: Final = 256


class Explanation(NamedTuple):
    maker: str
    """Which sidecar made the answer: `client's` or `server's`."""
    what: str
    """The chain of names down to what failed, as `l5d-proxy-error` has it."""
    why: str
    """The system's error and since when it occurs, or another detail; empty if `what` says it all."""
    advice: str
    """Where to look, or what to do; empty if nothing helps."""


def explain(head: ResponseHead, request: RequestHead, given: Explanation) -> bytes:
    """Add the explanation to the head. Returns the body that goes with it, empty where there can be none."""
    if is_grpc(request):
        _explain_grpc(head, given)
        return b""
    if request.method == b"HEAD" or head.body_size or head.status < 400:
        return b""
    body = _text(head.status, request, given)
    others = [one for one in head.fields if one.name != _LENGTH]
    head.fields = [Field(_LENGTH, b"%d" % len(body), PLAIN, False, b"", b""), _TEXT_TYPE, *others]
    head.body_size = len(body)
    return body


def _text(status: int, request: RequestHead, given: Explanation) -> bytes:
    authority = request.authority[:_AUTHORITY_CHARS].decode("latin-1")
    lines = [
        f"{status}, answered by the {given.maker} sidecar (Sponson), not by the application.",
        f"request: {request.method.decode('latin-1')} to {authority or '(no authority)'}",
        f"failed: {given.what}",
    ]
    if given.why:
        lines.append(f"because: {given.why}")
    if given.advice:
        lines.append(f"look at: {given.advice}")
    return "".join(f"{printable(line)}\n" for line in lines).encode("utf-8", "replace")


def _explain_grpc(head: ResponseHead, given: Explanation) -> None:
    for place, one in enumerate(head.fields):
        if one.name == _MESSAGE:
            more = "; ".join(text for text in (given.why, given.advice) if text)
            if more:
                value = one.value + b"; " + printable(more).encode("ascii", "replace").replace(b"%", b"%25")
                head.fields[place] = Field(_MESSAGE, value, PLAIN, False, b"", b"")
            return
