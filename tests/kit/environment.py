"""A workload's environment, complete and valid, for tests that change one thing in it."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
NAME = "client.bench.serviceaccount.identity.linkerd.cluster.local"


def environment(**changes: str | None) -> dict[str, str]:
    """`changes` are by name without LINKERD2_PROXY_, or by the full name of a variable of ours; None removes a
    variable.
    """
    env: dict[str, str | None] = {
        "DESTINATION_SVC_ADDR": "localhost.:8086",
        "DESTINATION_SVC_NAME": "linkerd-destination.linkerd.serviceaccount.identity.linkerd.cluster.local",
        "POLICY_SVC_ADDR": "localhost.:8090",
        "POLICY_SVC_NAME": "linkerd-destination.linkerd.serviceaccount.identity.linkerd.cluster.local",
        "POLICY_WORKLOAD": '{"ns":"bench", "pod":"client"}\n',
        "IDENTITY_SVC_ADDR": "127.0.0.1:8080",
        "IDENTITY_SVC_NAME": "linkerd-identity.linkerd.serviceaccount.identity.linkerd.cluster.local",
        "IDENTITY_LOCAL_NAME": NAME,
        "IDENTITY_DIR": "/proc/nowhere",  # not even root can make it: keys stay in memory
        "IDENTITY_TOKEN_FILE": str(DATA / "token"),
        "IDENTITY_TRUST_ANCHORS": (DATA / "anchor.pem").read_text(),
        "INBOUND_DEFAULT_POLICY": "all-unauthenticated",
    }
    env |= changes
    held = {name: value for name, value in env.items() if value is not None}
    return {name if name.startswith("SPONSON_") else f"LINKERD2_PROXY_{name}": value for name, value in held.items()}
