"""Detects requests that come from a web page of another site.

Any page that a person opens can make their browser send a POST to 127.0.0.1, and a page whose own name is made to resolve to 127.0.0.1
(DNS rebinding) can even read the answers. Both can be recognised: the first by its Origin, the second by a Host that is a name.
"""

from __future__ import annotations

from ipaddress import ip_address

from proxy.http.head import RequestHead

_LOCAL_NAMES = (b"localhost", b"localhost.", b"ip6-localhost", b"")
"""Accepted besides addresses. The empty name is HTTP/1.0 without Host, which no browser sends."""


def is_foreign(request: RequestHead) -> bool:
    """Whether Host is neither an address nor a local name, or Origin is there and is not that of this very port."""
    if not _is_local_name(request.authority):
        return True
    own = request.scheme + b"://" + request.authority
    return any(one.value.lower() != own.lower() for one in request.fields if one.name == b"origin")


def _is_local_name(authority: bytes) -> bool:
    host = authority.lower()
    if host.startswith(b"["):
        host = host[1:].partition(b"]")[0]
    else:
        host = host.partition(b":")[0]
    if host in _LOCAL_NAMES:
        return True
    try:
        ip_address(host.decode("latin-1"))
    except ValueError:
        return False
    return True
