"""Which ports are listened on, as `sponson up` looks for its app's."""

from __future__ import annotations

import socket

import pytest

from proxy.cli.process import listening
from proxy.cli.process.listening import is_listened_on


@pytest.mark.parametrize(
    ("family", "ip"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")]
)
def test_a_port_is_listened_on_from_listen_to_close(family: socket.AddressFamily, ip: str) -> None:
    with socket.socket(family) as one:
        try:
            one.bind((ip, 0))
        except OSError:
            pytest.skip(f"{ip} is no address of this machine")
        port = one.getsockname()[1]
        assert not is_listened_on(port), "it is bound, and no more"
        one.listen()
        assert is_listened_on(port)
        with socket.socket(family) as client:
            client.connect((("127.0.0.1" if ip == "0.0.0.0" else ip), port))
            assert not is_listened_on(client.getsockname()[1]), "a connection's port is none that is listened on"
    assert not is_listened_on(port)


def test_a_kernel_that_does_not_say_is_taken_for_a_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_TABLES", ())
    assert is_listened_on(1)
