"""The `forwarded` field (RFC 7239) as gateways write and read it: it lists who passed a request on, so that none goes in a loop."""

from __future__ import annotations

from proxy.http.head import HTTP_2, RequestHead
from proxy.http.headers import field

NAME = b"forwarded"


def has_passed(request: RequestHead, identity: bytes) -> bool:
    """Whether the gateway with this identity has passed the request on before: it is the `by` of an element of any
    `forwarded` field, in any spelling.
    """
    for one in request.fields:
        if one.name == NAME:
            for element in one.value.split(b","):
                for pair in element.split(b";"):
                    name, _, value = pair.partition(b"=")
                    if name.strip().lower() == b"by" and value.strip().strip(b'"').lower() == identity.lower():
                        return True
    return False


def passed_on(request: RequestHead, by: str, client: str, host: bytes) -> RequestHead:
    """The request as it goes on: its `forwarded` field names who passed it on, for which client, and its authority
    becomes `host`. For an HTTP/1 app that is the Host too, and the target where that has an authority: routes are chosen by it, and
    the app must not read another.
    """
    value = b"by=%b;for=%b;host=%b;proto=https" % (by.encode(), client.encode(), host)
    head = request.with_fields([*request.fields, field(NAME, value)])
    if head.version != HTTP_2:
        if head.method == b"CONNECT":
            head.target = host if b":" in host else host + b":80"
            head.take_authority(head.target)
            return head
        head.take_authority(host)
        if head.is_absolute:
            head.target = head.absolute_form()
    return head
