"""Finding free ports, and keeping them free until their listener comes."""

from __future__ import annotations

import socket

import pytest

from proxy.mesh import environment
from proxy.mesh.environment import HeldPorts, free_ports


def test_a_held_port_is_found_by_no_other_search_and_yet_can_be_listened_at(monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldPorts(3)
    monkeypatch.setattr(environment, "_CANDIDATES", held.numbers)
    with pytest.raises(OSError, match="no free ports"):
        free_ports(1)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", held.numbers[0]))
        listener.listen()
        held.release()
        assert sorted(free_ports(2)) == sorted(held.numbers[1:])
        with pytest.raises(OSError, match="no free ports"):
            free_ports(3)
