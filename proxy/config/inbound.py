"""What the inbound side needs beyond single variables: the default policy and the ports that are watched from the start.

A default policy that refers to the cluster needs the cluster's networks.
"""

from __future__ import annotations

from typing import Any, Final

from proxy.config import model
from proxy.config.outbound import backoff, http2_server
from proxy.config.ports import PortSet
from proxy.config.reading.reader import PREFIX, Reader
from proxy.config.reading.syntax import Invalid, debug
from proxy.core.address.names import Networks
from proxy.core.backoff import Backoff

_ANYWHERE: Final = (model.DENY, model.ALL_AUTHENTICATED, model.ALL_UNAUTHENTICATED)
_WITH_CLUSTER: Final = (model.CLUSTER_AUTHENTICATED, model.CLUSTER_UNAUTHENTICATED, model.AUDIT)


def read(reader: Reader, values: dict[str, Any]) -> None:
    values["inbound_connect_backoff"] = backoff(reader, "INBOUND_CONNECT", Backoff(0.1, 10.0, 0.1))
    values["inbound_server_http2"] = http2_server(reader, "INBOUND_SERVER_HTTP2")
    values["inbound_default_policy"] = _default_policy(reader, values["policy_cluster_networks"])
    if not values["inbound_ips"]:
        reader.note("`LINKERD2_PROXY_INBOUND_IPS` allowlist not configured, allowing all target addresses")
    watched = values["inbound_ports"] | PortSet.of(values["admin_listen_addr"].port)
    if values["inbound_gateway_suffixes"]:
        watched |= PortSet.of(values["inbound_listen_addr"].port)
    values["inbound_ports"] = watched


def _default_policy(reader: Reader, cluster: Networks) -> str:
    if reader.text("POLICY_CLUSTER_NETWORKS") is None:
        reader.note(f"{PREFIX}POLICY_CLUSTER_NETWORKS not set; cluster-scoped modes are unsupported")
    if reader.text("INBOUND_DEFAULT_POLICY") is None:
        reader.warn(f"{PREFIX}INBOUND_DEFAULT_POLICY was not set; using `all-unauthenticated`")

    def policy(text: str) -> str:
        if text in _ANYWHERE or (text in _WITH_CLUSTER and cluster):
            return text
        raise Invalid(f"InvalidPortPolicy({debug(text)})")

    return reader.read("INBOUND_DEFAULT_POLICY", policy, model.ALL_UNAUTHENTICATED)
