"""The environment of a workload compared with the one that Linkerd's injector sets on a pod (B21)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.cli.mesh.env import over
from proxy.config import parse
from proxy.core.address.addr import Addr
from proxy.mesh.environment import TUNING, Ports, Workload, own_address, workload_environment
from proxy.mesh.identity.authority import open_ca, utc_now
from proxy.mesh.identity.issued import Issued
from proxy.mesh.identity.revoked import Revocations, publish_lists
from proxy.mesh.identity.tokens import Account
from proxy.mesh.state import State

DATA = Path(__file__).parents[1] / "data"

OTHERWISE = {
    "LINKERD2_PROXY_LOG_FORMAT": "plain without it, and on a terminal the form for people",
    "LINKERD2_PROXY_INBOUND_IPS": "set off loopback, to the address that this machine is reached at",
    "LINKERD2_PROXY_OUTBOUND_LISTEN_ADDRS": "says the same as OUTBOUND_LISTEN_ADDR, which a person may set otherwise",
    "LINKERD2_PROXY_INBOUND_PORTS": "set from --app-port: there is no pod that declares ports",
}
"""Variables of the injector that a workload on loopback does not need, and why."""


def environment(state: State, server: str = "127.0.0.1:8086", app_ports: tuple[int, ...] = ()) -> dict[str, str]:
    ip, _, port = server.rpartition(":")
    workload = Workload(Account("web", "default"), "web-0", Ports(4143, 4140, 4191, 4190), 3600.0, app_ports)
    return workload_environment(state, Addr(ip, int(port)), workload)


def injected() -> dict[str, str]:
    """Linkerd's variables of a pod with the injector's defaults. Those that a kubelet fills in have no value here."""
    pod = json.loads((DATA / "injected-pods.json").read_text())["default"]
    (proxy,) = [one for one in pod["initContainers"] if one["name"] == "linkerd-proxy"]
    return {one["name"]: one.get("value", "") for one in proxy["env"] if one["name"].startswith("LINKERD2_PROXY_")}


def test_b21_whatever_the_injector_sets_is_set(tmp_path: Path) -> None:
    ours = environment(State(tmp_path))
    missing = injected().keys() - ours.keys()
    assert missing == OTHERWISE.keys()


def test_b21_what_only_tunes_has_the_injectors_values(tmp_path: Path) -> None:
    theirs = injected()
    assert {name: theirs[name] for name in TUNING} == TUNING
    ours = environment(State(tmp_path))
    assert {name: ours[name] for name in TUNING} == TUNING


def test_a_sidecar_of_ours_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse(environment(State(tmp_path), app_ports=(9090, 8080)))
    assert config.inbound_accept_keepalive_s == 10.0
    assert config.outbound_connect_user_timeout_s == 30.0
    assert config.identity_trust_anchors_file == str(tmp_path / "ca.crt")
    assert config.identity_revocations_file is None
    state = State(tmp_path)
    publish_lists(state, open_ca(state), Revocations(state, Issued(state, 0.0)), utc_now())
    assert parse(environment(State(tmp_path))).identity_revocations_file == str(tmp_path / "crl.pem")
    assert (tmp_path / "workloads/default/web/web-0/key.p8").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "workloads").stat().st_mode & 0o777 == 0o700


def test_who_runs_it_may_tune_it_and_cannot_change_who_it_is(tmp_path: Path) -> None:
    ours = environment(State(tmp_path))
    set_already = {"LINKERD2_PROXY_LOG": "debug", "LINKERD2_PROXY_IDENTITY_LOCAL_NAME": "boss", "HOME": "/root"}
    result = over(set_already, ours)
    assert result["LINKERD2_PROXY_LOG"] == "debug"
    assert result["LINKERD2_PROXY_IDENTITY_LOCAL_NAME"] == ours["LINKERD2_PROXY_IDENTITY_LOCAL_NAME"]
    assert result["HOME"] == "/root"


def test_the_address_of_this_machine_is_the_one_toward_the_control_plane() -> None:
    assert own_address(Addr("127.0.0.2", 8086)).startswith("127.")
    assert own_address(Addr("::1", 8086)) == "::1"
