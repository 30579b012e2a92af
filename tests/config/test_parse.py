"""A whole environment becomes a Config, or one error that names everything that is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from pathlib import Path

import pytest

from proxy.config import Config, ConfigError, ControlAddr, PortSet, parse
from proxy.config.telemetry import attributes
from proxy.core.address.addr import Addr
from proxy.core.address.names import Suffixes
from proxy.core.backoff import Backoff
from proxy.worker import without_effect
from tests.kit.certificates import the_ca
from tests.kit.environment import DATA, NAME, environment
from tests.tls.test_revoked import revocation_list

ABSENT = "/proc/absent"
"""A path that does not exist for anybody and that not even root can create. `/nowhere` of the recordings may exist on a machine."""

RECORDED = json.loads((DATA / "bad-configuration.json").read_text().replace("/nowhere", ABSENT))

BETTER: dict[str, str] = {
    "bad-anchors": "exit 64 with the other bad values, not 1 after start",
    "no-identity-dir": "directory, key and CSR are made",
}
"""Where our behaviour differs from the recording on purpose."""


def refused(env: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as found:
        parse(env)
    return found.value


def recorded_env(change: dict[str, str | None] | None) -> dict[str, str]:
    if change is None:
        return {}
    return environment(**{name.removeprefix("LINKERD2_PROXY_"): value for name, value in change.items()})


@pytest.mark.parametrize("case", sorted(set(RECORDED) - set(BETTER)))
def test_as_the_recording_says(case: str) -> None:
    recorded = RECORDED[case]
    error = refused(recorded_env(recorded["change"]))
    assert f"{error}\n" == recorded["stderr"] and recorded["exit"] == 64
    said = [line.partition("linkerd_app::env")[2].partition(": ")[2] for line in recorded["stdout"].split("\n")]
    errors = [text for text, line in zip(said, recorded["stdout"].split("\n"), strict=True) if "ERROR" in line]
    assert set(errors) <= set(error.lines)


def test_unusable_trust_anchors_are_refused_like_any_bad_value() -> None:
    error = refused(recorded_env(RECORDED["bad-anchors"]["change"]))
    assert str(error) == "Invalid configuration: invalid environment variable"
    assert error.lines == (
        'LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS="nonsense" is not valid: InvalidTrustAnchors: no usable certificate in PEM',
    )


def test_a_missing_identity_directory_is_made_later() -> None:
    assert parse(recorded_env(RECORDED["no-identity-dir"]["change"])).identity_dir == ABSENT


def test_every_bad_value_is_named_at_once() -> None:
    error = refused(environment(INBOUND_PORTS="x", OUTBOUND_CONNECT_TIMEOUT="y", IDENTITY_TOKEN_FILE=f"{ABSENT}/token"))
    assert error.lines == (
        'LINKERD2_PROXY_OUTBOUND_CONNECT_TIMEOUT="y" is not valid: NotADuration',
        'LINKERD2_PROXY_INBOUND_PORTS="x" is not valid: NotAnInteger(ParseIntError { kind: InvalidDigit })',
        "Could not read LINKERD2_PROXY_IDENTITY_TOKEN_FILE: No such file or directory (os error 2)",
        f'LINKERD2_PROXY_IDENTITY_TOKEN_FILE="{ABSENT}/token" is not valid: InvalidTokenSource',
    )


def test_nothing_set_names_all_that_must_be() -> None:
    lines = "\n".join(refused({}).lines)
    for name in (
        "DESTINATION_SVC_ADDR", "POLICY_SVC_ADDR", "POLICY_WORKLOAD", "IDENTITY_TRUST_ANCHORS", "IDENTITY_SERVER_ID",
        "IDENTITY_SERVER_NAME", "IDENTITY_DIR", "IDENTITY_TOKEN_FILE", "IDENTITY_SVC_ADDR",
    ):  # fmt: skip
        assert f"LINKERD2_PROXY_{name}" in lines


def test_the_first_fault_gives_the_final_text() -> None:
    assert str(refused(environment(POLICY_SVC_ADDR=None, POLICY_SVC_NAME=None))).endswith(
        "no policy service configured"
    )
    assert str(
        refused(environment(IDENTITY_LOCAL_NAME=None, IDENTITY_SERVER_ID="a.b", IDENTITY_SERVER_NAME="c.d"))
    ).endswith("linkerd identity requires a TLS Id and server name to be the same")


def test_the_process_environment_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"LINKERD2_PROXY_INGRESS_MODE": "true"})
    assert parse(environment()).ingress_mode is False


def test_a_value_that_is_no_unicode() -> None:
    assert refused(environment(DESTINATION_CONTEXT="a\udcff")).lines == (
        "LINKERD2_PROXY_DESTINATION_CONTEXT is not encoded in Unicode",
    )


def test_defaults() -> None:
    config = parse(environment())
    assert config.outbound_listen_addrs == (Addr("127.0.0.1", 4140),)
    assert config.inbound_listen_addr == Addr("0.0.0.0", 4143)
    assert config.control_listen_addr == Addr("0.0.0.0", 4190)
    assert config.admin_listen_addr == Addr("127.0.0.1", 4191)
    assert config.inbound_connect_backoff == Backoff(0.1, 10.0, 0.1)
    assert config.outbound_connect_backoff == Backoff(0.1, 60.0, 0.1)
    assert config.identity_spire_exp_backoff == Backoff(0.1, 1.0, 0.1)
    assert config.inbound_ports == PortSet.of(4191)
    assert config.destination_profile_suffixes == Suffixes(("svc.cluster.local.",))
    assert config.destination_svc == ControlAddr("localhost.", 8086, None)
    assert config.identity_svc == ControlAddr("127.0.0.1", 8080, None)
    assert config.policy_workload == '{"ns":"bench", "pod":"client"}\n'
    assert config.identity_server_id == config.identity_server_name == NAME
    assert (config.inbound_connect_timeout_s, config.outbound_connect_timeout_s) == (0.3, 1.0)
    assert (config.shutdown_grace_period_s, config.metrics_retain_idle_s) == (120.0, 600.0)
    assert (
        config.log == "warn,linkerd=info,hickory=error" and config.log_format == "plain" and config.access_log is None
    )
    assert config.tap_svc_name is None and config.trace_collector_svc is None
    assert config.outbound_explicit is False and config.allow_loopback is False


def test_every_attribute_has_its_type() -> None:
    config = parse(
        environment(TRACE_COLLECTOR_SVC_ADDR="localhost.:4317", INBOUND_TCP_LISTEN_BACKLOG="7", DNS_MIN_TTL="5s")
    )
    hints = typing.get_type_hints(Config)
    for one in dataclasses.fields(Config):
        hint = hints[one.name]
        kinds = [typing.get_origin(kind) or kind for kind in (typing.get_args(hint) if "|" in str(hint) else (hint,))]
        assert isinstance(getattr(config, one.name), tuple(kinds)), one.name


def test_controllers_off_loopback_prove_a_name() -> None:
    config = parse(environment(DESTINATION_SVC_ADDR="linkerd-dst-headless.linkerd.svc.cluster.local.:8086"))
    assert config.destination_svc.name == "linkerd-destination.linkerd.serviceaccount.identity.linkerd.cluster.local"
    assert not config.destination_svc.is_loopback
    assert config.destination_svc.authority == "linkerd-dst-headless.linkerd.svc.cluster.local.:8086"


def test_localhost_without_its_dot_is_a_name_like_any_other() -> None:
    assert refused(environment(DESTINATION_SVC_ADDR="localhost:8086", DESTINATION_SVC_NAME=None)).lines == (
        "LINKERD2_PROXY_DESTINATION_SVC_ADDR and LINKERD2_PROXY_DESTINATION_SVC_NAME must be specified together",
    )


def test_outbound_listeners() -> None:
    both = environment(OUTBOUND_LISTEN_ADDRS="127.0.0.1:1,[::1]:2", OUTBOUND_LISTEN_ADDR="127.0.0.1:3")
    assert parse(both).outbound_listen_addrs == (Addr("127.0.0.1", 1), Addr("::1", 2))
    assert parse(environment(OUTBOUND_LISTEN_ADDR="127.0.0.1:3")).outbound_listen_addrs == (Addr("127.0.0.1", 3),)


@pytest.mark.parametrize("policy", ["cluster-authenticated", "cluster-unauthenticated", "audit"])
def test_cluster_policies_need_networks(policy: str) -> None:
    assert refused(environment(INBOUND_DEFAULT_POLICY=policy)).lines == (
        f'LINKERD2_PROXY_INBOUND_DEFAULT_POLICY="{policy}" is not valid: InvalidPortPolicy("{policy}")',
    )
    config = parse(environment(INBOUND_DEFAULT_POLICY=policy, POLICY_CLUSTER_NETWORKS="10.0.0.0/8"))
    assert config.inbound_default_policy == policy


def test_a_gateway_watches_the_inbound_port_too() -> None:
    config = parse(environment(INBOUND_PORTS="80", INBOUND_GATEWAY_SUFFIXES="svc.cluster.local."))
    assert config.inbound_ports == PortSet.of(80, 4143, 4191)


def test_ingress_mode_silences_informational_headers_unless_told() -> None:
    assert parse(environment(INGRESS_MODE="true")).outbound_disable_informational_headers is True
    told = environment(INGRESS_MODE="true", OUTBOUND_DISABLE_INFORMATIONAL_HEADERS="false")
    assert parse(told).outbound_disable_informational_headers is False


@pytest.mark.parametrize(
    "change",
    [
        {"OUTBOUND_CONNECT_EXP_BACKOFF_MIN": "1s"},
        {"OUTBOUND_CONNECT_EXP_BACKOFF_JITTER": "0.1"},
        {"OUTBOUND_CONNECT_EXP_BACKOFF_MIN": "2s", "OUTBOUND_CONNECT_EXP_BACKOFF_MAX": "1s"},
        {"OUTBOUND_CONNECT_EXP_BACKOFF_MIN": "0", "OUTBOUND_CONNECT_EXP_BACKOFF_MAX": "0"},
        {
            "OUTBOUND_CONNECT_EXP_BACKOFF_MIN": "1s",
            "OUTBOUND_CONNECT_EXP_BACKOFF_MAX": "2s",
            "OUTBOUND_CONNECT_EXP_BACKOFF_JITTER": "inf",
        },
    ],
)
def test_bad_backoffs(change: dict[str, str]) -> None:
    (line,) = refused(environment(**change)).lines
    assert "LINKERD2_PROXY_OUTBOUND_CONNECT_EXP_BACKOFF_MIN" in line


def test_backoffs_also_under_the_doubled_prefix() -> None:
    config = parse(
        environment(INBOUND_CONNECT_EXP_BACKOFF_MIN="1s", INBOUND_CONNECT_EXP_BACKOFF_MAX="2s")
        | {
            "LINKERD2_PROXY_LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_MIN": "3s",
            "LINKERD2_PROXY_LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_MAX": "4s",
            "LINKERD2_PROXY_LINKERD2_PROXY_IDENTITY_SPIRE_EXP_BACKOFF_JITTER": "0.5",
        }
    )
    assert config.inbound_connect_backoff == Backoff(1.0, 2.0, 0.0)
    assert config.identity_spire_exp_backoff == Backoff(3.0, 4.0, 0.5)


@pytest.mark.acceptance("ENV-05")
@pytest.mark.parametrize(
    ("initial", "idle", "lifetime", "line"),
    [
        ("3s", "1s", "", "INITIAL_TIMEOUT must be less than LINKERD2_PROXY_CONTROL_STREAM_IDLE_TIMEOUT"),
        ("3s", "", "1s", "INITIAL_TIMEOUT must be less than LINKERD2_PROXY_CONTROL_STREAM_LIFETIME"),
        ("", "3s", "1s", "IDLE_TIMEOUT must be less than LINKERD2_PROXY_CONTROL_STREAM_LIFETIME"),
    ],
)
def test_control_stream_limits_that_contradict(initial: str, idle: str, lifetime: str, line: str) -> None:
    env = environment(
        CONTROL_STREAM_INITIAL_TIMEOUT=initial, CONTROL_STREAM_IDLE_TIMEOUT=idle, CONTROL_STREAM_LIFETIME=lifetime
    )
    assert refused(env).lines == (f"LINKERD2_PROXY_CONTROL_STREAM_{line}",)


@pytest.mark.acceptance("ENV-05")
@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (("1s", "2s", "3s"), (1.0, 2.0, 3.0)),
        (("2s", "2s", "2s"), (2.0, 2.0, 2.0)),
        (("", "", ""), (None, None, None)),
    ],
)
def test_control_stream_limits(texts: tuple[str, str, str], values: tuple[float | None, ...]) -> None:
    names = ("CONTROL_STREAM_INITIAL_TIMEOUT", "CONTROL_STREAM_IDLE_TIMEOUT", "CONTROL_STREAM_LIFETIME")
    config = parse(environment(**dict(zip(names, texts, strict=True))))
    found = (
        config.control_stream_initial_timeout_s,
        config.control_stream_idle_timeout_s,
        config.control_stream_lifetime_s,
    )
    assert found == values


@pytest.mark.acceptance("ENV-06")
def test_http2_server_settings() -> None:
    default = parse(environment()).inbound_server_http2
    assert (default.initial_stream_window_size, default.initial_connection_window_size) == (65_535, 1 << 20)
    assert default.adaptive_flow_control is False and default.keep_alive_interval_s is None
    assert default.max_concurrent_streams is None and default.max_send_buf_size is None

    settings = {
        "MAX_CONCURRENT_STREAMS": "3",
        "MAX_FRAME_SIZE": "4",
        "MAX_HEADER_LIST_SIZE": "5",
        "MAX_PENDING_ACCEPT_RESET_STREAMS": "6",
        "MAX_SEND_BUF_SIZE": "7",
        "KEEP_ALIVE_TIMEOUT": "1s",
        "KEEP_ALIVE_INTERVAL": "2s",
        "INITIAL_STREAM_WINDOW_SIZE": "1",
        "INITIAL_CONNECTION_WINDOW_SIZE": "2",
    }
    full = {f"OUTBOUND_SERVER_HTTP2_{name}": value for name, value in settings.items()}
    found = parse(environment(**full)).outbound_server_http2
    assert dataclasses.astuple(found) == (1, 2, False, 2.0, 1.0, 3, 4, 5, 6, 7)

    adaptive = parse(environment(**full, OUTBOUND_SERVER_HTTP2_ADAPTIVE_FLOW_CONTROL="true")).outbound_server_http2
    assert adaptive == dataclasses.replace(
        found, adaptive_flow_control=True, initial_stream_window_size=65_535, initial_connection_window_size=1 << 20
    )
    fixed = {name: value for name, value in full.items() if "WINDOW" not in name} | {
        "OUTBOUND_SERVER_HTTP2_ADAPTIVE_FLOW_CONTROL": "false"
    }
    assert parse(environment(**fixed)).outbound_server_http2 == dataclasses.replace(
        adaptive, adaptive_flow_control=False
    )


def test_half_a_pair_of_windows_or_keepalives_counts_for_nothing() -> None:
    found = parse(
        environment(INBOUND_SERVER_HTTP2_INITIAL_STREAM_WINDOW_SIZE="1", INBOUND_SERVER_HTTP2_KEEP_ALIVE_TIMEOUT="1s")
    ).inbound_server_http2
    assert (found.initial_stream_window_size, found.keep_alive_timeout_s) == (65_535, None)


@pytest.mark.acceptance("ENV-07")
def test_attribute_lines() -> None:
    text = (
        'cluster="test-cluster1"\nrack="rack-22"\nzone=us-est-coast\n'
        'linkerd.io/control-plane-component="controller"\nlinkerd.io/proxy-deployment="linkerd-controller"\n'
        'workload=\nkind=""\nkey1="="\nkey2==value2\nkey3\n=key4\n'
    )
    assert attributes(text) == {
        "cluster": "test-cluster1",
        "rack": "rack-22",
        "zone": "us-est-coast",
        "linkerd.io/control-plane-component": "controller",
        "linkerd.io/proxy-deployment": "linkerd-controller",
        "workload": "",
        "kind": "",
        "key1": "=",
        "key2": "=value2",
        "": "key4",
    }


@pytest.mark.acceptance("ENV-07")
def test_attributes_of_file_and_variables_merge(tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    labels.write_text('app="web-svc"\nversion="v11"')
    env = environment(
        TRACE_ATTRIBUTES_PATH=str(labels),
        TRACE_SERVICE_NAME="linkerd-proxy",
        TRACE_EXTRA_ATTRIBUTES='k8s.pod.ip="0.0.0.0"\nservice.name="web-linkerd-proxy"\n',
    ) | {"OTEL_RESOURCE_ATTRIBUTES": "version=v12"}
    assert parse(env).trace_attributes == (
        ("app", "web-svc"),
        ("k8s.pod.ip", "0.0.0.0"),
        ("service.name", "web-linkerd-proxy"),
        ("version", "v12"),
    )


def test_an_unreadable_attributes_file_is_only_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert parse(environment(TRACE_ATTRIBUTES_PATH=ABSENT)).trace_attributes == ()
    assert "Failed to read trace attributes" in caplog.text


def test_trust_anchors_from_a_file_of_ours() -> None:
    env = environment(IDENTITY_TRUST_ANCHORS=None) | {"SPONSON_IDENTITY_TRUST_ANCHORS_FILE": str(DATA / "anchor.pem")}
    assert parse(env).identity_trust_anchors == (DATA / "anchor.pem").read_text()
    # It takes precedence over Linkerd's variable, because a file can be followed while the process runs.
    assert parse(env | {"LINKERD2_PROXY_IDENTITY_TRUST_ANCHORS": "nonsense"}).identity_trust_anchors_file is not None
    env["SPONSON_IDENTITY_TRUST_ANCHORS_FILE"] = ABSENT
    assert "SPONSON_IDENTITY_TRUST_ANCHORS_FILE" in refused(env).lines[0]


def test_a_revocation_list_must_be_there_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "crl.pem"
    file.write_text(revocation_list(the_ca(), 5))
    assert parse(environment(SPONSON_IDENTITY_REVOCATIONS_FILE=str(file))).identity_revocations_file == str(file)
    assert parse(environment()).identity_revocations_file is None
    file.write_text("nonsense")
    for path in (str(file), ABSENT):
        (line,) = refused(environment(SPONSON_IDENTITY_REVOCATIONS_FILE=path)).lines
        assert line.startswith("Could not read SPONSON_IDENTITY_REVOCATIONS_FILE: ")


def test_our_own_switches() -> None:
    config = parse(environment() | {"SPONSON_OUTBOUND_EXPLICIT": "true", "SPONSON_ALLOW_LOOPBACK": "true"})
    assert config.outbound_explicit and config.allow_loopback
    assert config.outbound_search == Suffixes()
    search = parse(environment() | {"SPONSON_OUTBOUND_SEARCH": "shop.svc.cluster.local"}).outbound_search
    assert search == Suffixes(("shop.svc.cluster.local",))
    assert refused(environment() | {"SPONSON_ALLOW_LOOPBACK": "1"}).lines == (
        'SPONSON_ALLOW_LOOPBACK="1" is not valid: NotABool(ParseBoolError)',
    )


def test_spire_needs_a_uri_and_no_linkerd_identity() -> None:
    spire = environment(
        IDENTITY_SPIRE_WORKLOAD_API_ADDRESS="unix:/run/spire.sock",
        IDENTITY_LOCAL_NAME=None,
        IDENTITY_SERVER_ID="spiffe://root/web",
        IDENTITY_SERVER_NAME="web.mesh",
        IDENTITY_DIR=None,
        IDENTITY_TOKEN_FILE=None,
        IDENTITY_SVC_ADDR=None,
        IDENTITY_SVC_NAME=None,
    )
    config = parse(spire)
    assert config.identity_spire_workload_api_address == "/run/spire.sock"
    assert (config.identity_server_id, config.identity_server_name) == ("spiffe://root/web", "web.mesh")
    assert config.identity_svc is None and config.identity_dir is None
    spire["LINKERD2_PROXY_IDENTITY_SERVER_ID"] = "web.mesh"
    assert refused(spire).lines == ("Spire support requires a SPIFFE TLS Id",)


def test_identity_cannot_be_disabled() -> None:
    assert parse(environment(IDENTITY_DISABLED="")).identity_server_id == NAME
    assert "IDENTITY_DISABLED is no longer supported" in refused(environment(IDENTITY_DISABLED="1")).lines[0]


def test_an_empty_token_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(" \n")
    lines = refused(environment(IDENTITY_TOKEN_FILE=str(tmp_path / "token"))).lines
    assert lines[0] == "Could not read LINKERD2_PROXY_IDENTITY_TOKEN_FILE: token is empty"


def test_what_nothing_reads_is_named() -> None:
    """The worker names, at its start, the variables that are set and have no effect."""
    assert without_effect(parse(environment())) == []
    asked = {
        "INBOUND_SERVER_HTTP2_ADAPTIVE_FLOW_CONTROL": "true",
        "OUTBOUND_SERVER_HTTP2_MAX_SEND_BUF_SIZE": "65536",
    }
    assert set(without_effect(parse(environment(**asked)))) == {f"LINKERD2_PROXY_{name}" for name in asked}
