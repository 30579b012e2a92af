"""SSL contexts for mesh TLS (docs/linkerd/identity-and-tls.md, section 5).

TLS 1.3 only, no tickets, no host name check by the chain verifier.
Anchors are roots whatever they are (partial chains end at them). Which
cipher is used follows the client's order, since Linkerd's clients put the
cheapest first; groups are OpenSSL's own, X25519MLKEM768 first where it has it.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import textwrap
from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from proxy.core import limits
from proxy.core.connection.dial import ALPN
from proxy.tls.hello import Hello, read_hello

_NO_APPLICATION_PROTOCOL: Final = 120
"""RFC 7301, section 3.2; the ssl module has no name for it."""

_refusals: Final[WeakKeyDictionary[ssl.SSLContext, ssl.SSLContext]] = WeakKeyDictionary()


def client_context(anchors_der: Sequence[bytes], offers_transport_header: bool) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, anchors_der)
    context.verify_mode = ssl.CERT_REQUIRED
    if offers_transport_header:
        context.set_alpn_protocols([ALPN])
    return context


def server_context(anchors_der: Sequence[bytes], is_direct: bool) -> ssl.SSLContext:
    """Requests a client certificate without requiring one. A direct one selects ALPN, and refuses clients that offer only
    other protocols."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, anchors_der)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0
    if is_direct:
        context.set_alpn_protocols([ALPN])
        refusal = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        refusal.sni_callback = _refuse
        _refusals[context] = refusal
    return context


def _context(protocol: int, anchors_der: Sequence[bytes]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    # Some builds of Python set this by default (Debian's 3.11.2): a connection that was cut would look like one that ended.
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_TRUSTED_FIRST
    for anchor in anchors_der:
        context.load_verify_locations(cadata=anchor)
    return context


def _refuse(tls: object, server_name: str | None, context: ssl.SSLContext) -> int:
    return _NO_APPLICATION_PROTOCOL


def refusal_of(context: ssl.SSLContext, sock: socket.socket) -> ssl.SSLContext | None:
    """The context that answers with an alert, if the ClientHello at hand offers only protocols foreign to `context`.

    OpenSSL's callback, as Python sets it, would go on without a protocol there. OSError if the socket is broken.
    """
    refusal = _refusals.get(context)
    if refusal is None:
        return None
    try:
        hello = read_hello(sock.recv(limits.HELLO_BYTES, socket.MSG_PEEK))
    except BlockingIOError:
        return None
    if isinstance(hello, Hello) and hello.alpn and ALPN.encode() not in hello.alpn:
        return refusal
    return None


def load_chain(context: ssl.SSLContext, chain_der: Sequence[bytes], key_der: bytes) -> None:
    """Present this chain, leaf first, with its PKCS#8 key. OSError or ssl.SSLError if they cannot be read or do not
    belong together.

    OpenSSL reads only files. This one is in memory, has no name, and is gone when it has been read.
    """
    pem = _pem("PRIVATE KEY", key_der) + "".join(_pem("CERTIFICATE", der) for der in chain_der)
    fd = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        os.write(fd, pem.encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def _pem(label: str, der: bytes) -> str:
    body = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n"


def is_cut(error: Exception) -> bool:
    """The peer ended the connection without close_notify. Some builds of CPython (Debian's 3.11.2) show that by the reason alone, not by the type."""
    if isinstance(error, ssl.SSLEOFError):
        return True
    return isinstance(error, ssl.SSLError) and ssl_reason(error) == "unexpected eof while reading"


def is_reset(error: OSError) -> bool:
    """Whether a read has met a reset instead of a FIN. CPython reports a broken connection as an end, and its errno is
    gone by then, but OpenSSL 3 has a reason of its own for a true end.
    """
    return isinstance(error, ssl.SSLEOFError) and not ssl_reason(error) and ssl.OPENSSL_VERSION_INFO >= (3,)


def unread_of(read: Callable[[int, memoryview], int], into: memoryview) -> int:
    """The number of bytes that the peer sent before it reset the connection, for when a failed write was the first sign of the reset."""
    filled = 0
    try:
        while filled < len(into) and (count := read(len(into) - filled, into[filled:])):
            filled += count
    except OSError:
        forget_errors()  # there is nothing more
    return filled


_SPARE: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def forget_errors() -> None:
    """Empty OpenSSL's queue of errors, which all connections of a thread have in common. Called whenever a call for one of
    them has failed.

    CPython 3.13 raises an error of the system (EPIPE, for one) and leaves it in the queue. OpenSSL would then report it for
    the next connection that has nothing to read, which would be ended though it is whole. Python has no function that empties the queue, but
    a choice of ciphers of which there is none does.
    """
    try:
        _SPARE.set_ciphers("NONE-OF-THIS-NAME")
    except ssl.SSLError:
        pass


def ssl_reason(error: ssl.SSLError) -> str:
    """OpenSSL's reason in words; empty if there is none, although the type of `reason` does not allow for that."""
    reason: object = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if isinstance(reason, str) else ""
