"""How a channel reaches its controller: plain text on loopback, mesh TLS elsewhere (docs/linkerd/configuration.md, section 4.6).

The configured address decides, not what it resolves to. TLS selects no
ALPN, as Linkerd's proxies do not; the context is asked for anew for each
dial, so that the first Certify goes without a client certificate and later
connections carry the newest one.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.control.rpc.settings import Dial
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.codec import Codec, Wire
from proxy.core.connection.dial import DialOptions
from proxy.core.loop.reactor import Reactor
from proxy.tls.credentials import Credentials
from proxy.tls.handshake import dial_tls
from proxy.tls.peer import TlsTarget
from proxy.transport.plain import dial_plain


def dial_to(reactor: Reactor, target: ControlAddr, credentials: Credentials) -> Dial:
    """Makes connections to this target; ValueError if the target is not loopback and has no name to check."""

    def plain(addr: Addr, make_codec: Callable[[Wire], Codec], options: DialOptions) -> Codec:
        return dial_plain(reactor, addr, make_codec, options)

    if target.is_loopback:
        return plain
    name = target.name
    if name is None:
        raise ValueError(f"controller {target}: no identity to expect of it")

    def tls(addr: Addr, make_codec: Callable[[Wire], Codec], options: DialOptions) -> Codec:
        context = credentials.client_context(False)
        return dial_tls(reactor, addr, TlsTarget(context, name, name, credentials.revoked), make_codec, options)

    return tls
