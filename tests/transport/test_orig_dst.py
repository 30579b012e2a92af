"""The original destination, read from the kernel's structures."""

from __future__ import annotations

import socket
import struct

import pytest

from proxy.core.address.addr import Addr
from proxy.transport.orig_dst import original_dst
from tests.kit.sockets import tcp_pair


class Redirected:
    """Answers as netfilter would."""

    def __init__(self, level: int, answer: bytes) -> None:
        self.level = level
        self.answer = answer

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        assert (level, option) == (self.level, 80) and size == len(self.answer)
        return self.answer


V4 = struct.pack("=H", socket.AF_INET) + struct.pack("!H", 8080) + socket.inet_aton("10.1.2.3") + bytes(8)


def v6(ip: str) -> bytes:
    return (
        struct.pack("=H", socket.AF_INET6)
        + struct.pack("!HI", 8080, 0)
        + socket.inet_pton(socket.AF_INET6, ip)
        + bytes(4)
    )


def test_ipv4() -> None:
    assert original_dst(Redirected(socket.IPPROTO_IP, V4), Addr("10.9.9.9", 5)) == Addr("10.1.2.3", 8080)


def test_ipv6() -> None:
    assert original_dst(Redirected(socket.IPPROTO_IPV6, v6("fd00::1")), Addr("fd00::2", 5)) == Addr("fd00::1", 8080)


def test_a_mapped_address_is_unwrapped() -> None:
    assert original_dst(Redirected(socket.IPPROTO_IPV6, v6("::ffff:10.1.2.3")), Addr("fd00::2", 5)) == Addr(
        "10.1.2.3", 8080
    )


def test_without_redirection_there_is_none() -> None:
    client, accepted = tcp_pair()
    try:
        found = original_dst(accepted, Addr(*client.getsockname()))
    except OSError:
        return
    else:  # connection tracking is loaded, and nothing was redirected
        assert found == Addr(*accepted.getsockname())
    finally:
        client.close()
        accepted.close()


@pytest.mark.parametrize("peer", [Addr("10.9.9.9", 5), Addr("fd00::2", 5)])
def test_an_answer_that_is_too_short_is_an_error(peer: Addr) -> None:
    class Short:
        def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
            return bytes(6)

    with pytest.raises(OSError, match="has only 6 bytes"):
        original_dst(Short(), peer)
