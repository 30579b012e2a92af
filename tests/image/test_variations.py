"""Every pod that Linkerd's injector made for the recording, with the image exchanged and nothing else: does it start, is it
redirected as its rules say, does it answer its probes, and does it end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.image.conftest import Node
from tests.image.kubelet import running
from tests.image.rendered import VARIATIONS, proxy_of


def admin_port(spec: dict[str, Any]) -> int:
    return int(proxy_of(spec)["readinessProbe"]["httpGet"]["port"])


@pytest.mark.parametrize("variation", VARIATIONS)
def test_it_starts_is_redirected_and_ends(node: Node, variation: str) -> None:
    kubelet = node.kubelet(variation)
    spec = kubelet.spec
    with running(kubelet):
        port = admin_port(spec)
        assert kubelet.get(port, "/live") == 200
        assert kubelet.get(port, "/ready") == 200
        assert kubelet.stop() == {"linkerd-proxy": 0}
