"""Installed rules, proved by connections: which ones reach the sidecar and which do not, over IPv4 and IPv6.

The arguments are those that Linkerd's injector gives its init container, from the recording of its output for a
pod. The rules must be those of Linkerd's own program, word for word: those that were recorded
(tests/data/proxy-init-rules.json), or those that it makes now, if it is at hand (SPONSON_TEST_PROXY_INIT names it).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.redirect.place import NEIGHBOUR, OUTSIDE, POD, Place, arrives, why_not

pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]

ROOT = Path(__file__).parents[2]
GOLDEN = json.loads((ROOT / "tests/data/injected-pods.json").read_text())
RECORDED = json.loads((ROOT / "tests/data/proxy-init-rules.json").read_text())
PROXY_INIT = os.environ.get("SPONSON_TEST_PROXY_INIT", "")
SPONSON = [sys.executable, "-m", "proxy", "redirect"]
OURS = [
    sys.executable,
    "-c",
    "import sys; from proxy.cli.redirect import proxy_init; sys.exit(proxy_init(sys.argv[1:]))",
]


def _init_arguments() -> dict[str, list[str]]:
    """Every distinct command line of an init container, by the first variation that has it."""
    found: dict[str, list[str]] = {}
    pods = {"default": GOLDEN["default"], **GOLDEN["variations"]}
    for name, pod in pods.items():
        for container in pod.get("initContainers", []):
            if container["name"] == "linkerd-init" and container["args"] not in found.values():
                found[name] = container["args"]
    return found


ARGUMENTS = _init_arguments()
MORE = {
    "ports-to-redirect": ["-p", "4143", "-o", "4140", "-u", "2102", "-r", "8080", "--iptables-mode", "nft"],
    "plain": ["-p", "4143", "-o", "4140", "-u", "2102", "--iptables-mode", "plain"],
    "many-ports": [
        "-p", "4143", "-o", "4140", "-u", "2102", "--iptables-mode", "nft",
        "--inbound-ports-to-ignore", ",".join(str(port) for port in range(7000, 7020)), "--inbound-ports-to-ignore", "25",
    ],
}  # fmt: skip


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as made:
        for port, name in ((4143, "inbound"), (4140, "outbound"), (5143, "inbound"), (5140, "outbound")):
            made.listen(made.pod, port, name)
        for port in (8080, 25, 1500, 4191, 7019):
            made.listen(made.pod, port, "app")
        for port in (80, 3306, 4567):
            made.listen(made.outside, port, "outside")
        yield made


def install(place: Place, *arguments: str, command: list[str] = OURS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(place.command(*command, *arguments), capture_output=True, text=True, cwd=ROOT)


def option(arguments: list[str], name: str, default: str = "") -> list[str]:
    return [
        item for flag, value in zip(arguments, arguments[1:], strict=False) if flag == name for item in value.split(",")
    ] or [item for item in [default] if item]


@pytest.mark.parametrize("name", [*ARGUMENTS, *MORE])
def test_who_arrives_where(place: Place, name: str) -> None:
    arguments = (ARGUMENTS | MORE)[name]
    done = install(place, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    check_arrivals(place, arguments)


def check_arrivals(place: Place, arguments: list[str]) -> None:
    """Over both families: connections from outside and from inside, to ports that are redirected and ports that are
    skipped, by several users.
    """
    uid = int((option(arguments, "--proxy-uid") or option(arguments, "-u"))[0])
    gid = int(option(arguments, "--proxy-gid", "-1")[0])
    is_skipped_in = ",".join(option(arguments, "--inbound-ports-to-ignore"))
    is_skipped_out = ",".join(option(arguments, "--outbound-ports-to-ignore"))
    for is_ipv6 in (False, True):
        is_on = not is_ipv6 or "--ipv6=false" not in arguments
        pod, outside = POD[is_ipv6], OUTSIDE[is_ipv6]
        assert arrives(place.outside, (pod, 8080)) == ("inbound" if is_on else "app")
        only_8080 = "-r" in arguments
        for port in (25, 1500, 4191, 7019):
            skips = only_8080 or any(_covers(text, port) for text in is_skipped_in.split(",") if text)
            assert arrives(place.outside, (pod, port)) == ("inbound" if is_on and not skips else "app"), port
        for port in (80, 3306, 4567):
            skips = any(_covers(text, port) for text in is_skipped_out.split(",") if text)
            assert arrives(place.pod, (outside, port)) == ("outbound" if is_on and not skips else "outside"), port
        assert arrives(place.pod, (outside, 80), uid=uid) == "outside"
        if gid >= 0:
            assert arrives(place.pod, (outside, 80), gid=gid) == "outside"
        # The pod's own loopback, and its own address, which the kernel reaches over lo.
        assert arrives(place.pod, ("::1" if is_ipv6 else "127.0.0.1", 8080)) == "app"
        assert arrives(place.pod, (pod, 8080)) == "app"


def _covers(text: str, port: int) -> bool:
    low, _, high = text.partition("-")
    return int(low) <= port <= int(high or low)


@pytest.mark.parametrize("how", [["--iptables-mode", "nft"], ["--nftables"]])
def test_skipped_subnets_of_both_families(place: Place, how: list[str]) -> None:
    subnets = ["--subnets-to-ignore", "10.98.0.0/16,fd98::/16"]
    done = install(place, "install", *how, *subnets, command=SPONSON)
    assert done.returncode == 0, done.stderr
    for is_ipv6 in (False, True):
        assert arrives(place.outside, (POD[is_ipv6], 8080), source=NEIGHBOUR[is_ipv6]) == "app"
        assert arrives(place.outside, (POD[is_ipv6], 8080), source=OUTSIDE[is_ipv6]) == "inbound"


def test_a_table_of_nftables_does_the_same_and_goes_without_a_trace(place: Place) -> None:
    before = subprocess.run(place.command("nft", "list", "ruleset"), capture_output=True, text=True).stdout
    skips = ["--inbound-ports-to-ignore", "25,1000-2000", "--outbound-ports-to-ignore", "3306"]
    for _ in range(2):
        assert install(place, "install", "--nftables", *skips, command=SPONSON).returncode == 0
    for is_ipv6 in (False, True):
        pod, outside = POD[is_ipv6], OUTSIDE[is_ipv6]
        assert arrives(place.outside, (pod, 8080)) == "inbound"
        assert [arrives(place.outside, (pod, port)) for port in (25, 1500)] == ["app", "app"]
        assert [arrives(place.pod, (outside, port)) for port in (80, 3306)] == ["outbound", "outside"]
        assert arrives(place.pod, (outside, 80), uid=2102) == "outside"
    shown = install(place, "show", command=SPONSON)
    assert shown.returncode == 0 and "redirect to :4143" in shown.stdout
    assert install(place, "remove", command=SPONSON).returncode == 0
    assert subprocess.run(place.command("nft", "list", "ruleset"), capture_output=True, text=True).stdout == before
    assert install(place, "show", command=SPONSON).returncode == 1


def test_installing_again_changes_nothing_and_other_ports_replace_the_old(place: Place) -> None:
    arguments = ARGUMENTS["default"]
    install(place, *arguments)
    once = place.saved("iptables-nft")
    assert install(place, *arguments).returncode == 0
    assert place.saved("iptables-nft") == once
    assert install(place, *ARGUMENTS["a-ports"]).returncode == 0
    now = place.saved("iptables-nft")
    assert "--to-ports 5143" in now and "--to-ports 4143" not in now
    assert now.count("-j PROXY_INIT_REDIRECT") == 1


def test_removing_leaves_other_peoples_rules(place: Place) -> None:
    nat = [*place.command("iptables-nft"), "-t", "nat"]
    subprocess.run([*nat, "-N", "THEIRS"], check=True)
    subprocess.run([*nat, "-A", "OUTPUT", "-p", "tcp", "--dport", "81", "-j", "THEIRS"], check=True)
    before = place.saved("iptables-nft")
    install(place, *ARGUMENTS["v-ipv6"])
    assert place.saved("iptables-nft") != before and "PROXY_INIT" in place.saved("ip6tables-nft")
    done = install(place, "remove", command=SPONSON)
    assert done.returncode == 0, done.stderr
    assert place.saved("iptables-nft") == before
    assert "PROXY_INIT" not in place.saved("ip6tables-nft")
    assert "nothing was installed" in install(place, "remove", command=SPONSON).stdout


@pytest.mark.parametrize("earlier", ["nothing", "other rules"])
def test_a_failure_in_the_second_family_puts_the_first_one_back(place: Place, earlier: str, tmp_path: Path) -> None:
    if earlier == "other rules":
        install(place, *ARGUMENTS["a-ports"])
    before = place.saved("iptables-nft")
    broken = tmp_path / "ip6tables-nft-restore"
    broken.write_text("#!/bin/sh\necho 'line 3 failed' >&2; exit 2\n")
    broken.chmod(0o755)
    command = ["env", f"PATH={tmp_path}:{os.environ['PATH']}", *OURS]
    done = install(place, *ARGUMENTS["v-ipv6"], command=command)
    assert done.returncode == 1
    assert "Error: ip6tables-nft-restore: exit status 2: line 3 failed" in done.stderr
    assert place.saved("iptables-nft") == before


CLOSE_WAIT = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"


def close_wait_s(place: Place) -> int:
    done = subprocess.run(place.command("cat", CLOSE_WAIT), capture_output=True, text=True)
    if done.returncode:
        pytest.skip("this kernel tracks no connections")
    return int(done.stdout)


@pytest.mark.parametrize("how", ["inside", "by its path"])
def test_the_timeout_is_the_namespaces_and_goes_back_with_a_failure(place: Place, how: str, tmp_path: Path) -> None:
    before, elsewhere = close_wait_s(place), Path(CLOSE_WAIT).read_text()
    assert before != 3600

    def redirect(*more: str) -> subprocess.CompletedProcess[str]:
        arguments = [*more, *OURS, *ARGUMENTS["v-ipv6"], "--timeout-close-wait-secs", "3600"]
        if how == "inside":
            return subprocess.run(place.command(*arguments), capture_output=True, text=True, cwd=ROOT)
        by_path = [*arguments, "--netns", f"/run/netns/{place.pod}"]
        return subprocess.run(by_path, capture_output=True, text=True, cwd=ROOT)

    broken = tmp_path / "ip6tables-nft-restore"
    broken.write_text("#!/bin/sh\nexit 2\n")
    broken.chmod(0o755)
    assert redirect("env", f"PATH={tmp_path}:{os.environ['PATH']}").returncode == 1
    assert close_wait_s(place) == before
    done = redirect()
    assert done.returncode == 0, done.stderr
    assert "nf_conntrack_tcp_timeout_close_wait = 3600" in done.stdout
    assert close_wait_s(place) == 3600
    if how == "by its path":
        assert Path(CLOSE_WAIT).read_text() == elsewhere


def only(folder: Path, *names: str) -> list[str]:
    """`env` for a PATH that has these programs of iptables and no others, and everything that is not iptables."""
    for directory in os.environ["PATH"].split(":"):
        for file in Path(directory).glob("*"):
            is_wanted = file.name in names or not file.name.startswith(("iptables", "ip6tables"))
            if is_wanted and not (folder / file.name).exists():
                (folder / file.name).symlink_to(file)
    return ["env", f"PATH={folder}"]


def test_where_the_programs_have_no_other_name(place: Place, tmp_path: Path) -> None:
    """If the programs have no other name, installing falls back to them, so showing and removing must look there too."""
    names = [f"{name}{ending}" for name in ("iptables", "ip6tables") for ending in ("", "-save", "-restore")]
    path = only(tmp_path, *names)
    done = install(place, *ARGUMENTS["default"], command=[*path, *OURS])
    assert done.returncode == 0, done.stderr
    assert "iptables-nft is not there: using iptables" in done.stdout
    shown = install(place, "show", command=[*path, *SPONSON])
    assert shown.returncode == 0 and shown.stdout.startswith("# iptables -t nat\n"), shown.stderr
    assert install(place, "remove", command=[*path, *SPONSON]).stdout == ""
    assert "PROXY_INIT" not in place.saved("iptables")


def test_without_the_capability_the_error_says_what_it_takes(place: Place) -> None:
    unprivileged = ["setpriv", "--reuid=1000", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", *OURS]
    if (
        not os.access(sys.executable, os.X_OK)
        or subprocess.run(
            ["setpriv", "--reuid=1000", "--clear-groups", sys.executable, "-c", "import proxy"],
            cwd=ROOT,
            capture_output=True,
        ).returncode
    ):
        pytest.skip("another user cannot run this checkout's Python")
    done = install(place, *ARGUMENTS["default"], command=unprivileged)
    assert done.returncode == 1
    assert "NET_ADMIN" in done.stderr
    assert "PROXY_INIT" not in place.saved("iptables-nft")


def test_simulating_only_tells(place: Place) -> None:
    done = install(place, *ARGUMENTS["v-ipv6"], "--simulate")
    assert done.returncode == 0
    assert "-t nat -N PROXY_INIT_REDIRECT" in done.stdout and "ip6tables-nft" in done.stdout
    assert "PROXY_INIT" not in place.saved("iptables-nft")
    done = install(place, "install", "--simulate", command=SPONSON)
    assert "-t nat -N PROXY_INIT_REDIRECT" in done.stdout
    assert install(place, *ARGUMENTS["v-ipv6"]).returncode == 0
    before = place.saved("iptables-nft")
    done = install(place, "remove", "--simulate", command=SPONSON)
    assert "-t nat -X PROXY_INIT_REDIRECT" in done.stdout and "nothing was installed" not in done.stdout
    assert place.saved("iptables-nft") == before


def test_a_namespace_by_its_path(place: Place) -> None:
    command = [*OURS, *ARGUMENTS["default"], "--netns", f"/run/netns/{place.pod}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "PROXY_INIT" in place.saved("iptables-nft")
    there = ["--netns", f"/run/netns/{place.pod}"]
    shown = subprocess.run([*SPONSON, "show", *there], capture_output=True, text=True, cwd=ROOT)
    assert shown.returncode == 0 and "PROXY_INIT_OUTPUT" in shown.stdout


def test_legacy_rules_of_a_namespace_by_its_path(place: Place) -> None:
    """The tables that exist are looked up in that namespace, not in ours."""
    there = ["--netns", f"/run/netns/{place.pod}"]
    done = subprocess.run([*OURS, *ARGUMENTS["v-legacy-init"], *there], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "PROXY_INIT" in place.saved("iptables-legacy")
    shown = subprocess.run([*SPONSON, "show", *there], capture_output=True, text=True, cwd=ROOT)
    assert shown.stdout.startswith("# iptables-legacy -t nat\n")
    assert subprocess.run([*SPONSON, "remove", *there], capture_output=True, cwd=ROOT).returncode == 0
    assert "PROXY_INIT" not in place.saved("iptables-legacy")


def test_the_validator_sees_whether_connections_are_redirected(place: Place) -> None:
    check = [sys.executable, "-m", "proxy", "validate-network", "--timeout", "300ms", "--connect-addr"]
    for target, listen in (("10.97.0.9:20001", "127.0.0.1:4141"), ("[fd97::9]:20001", "[::]:4141")):
        command = place.command(*check, target, "--listen-addr", listen)
        subprocess.run(place.command(*SPONSON, "remove"), cwd=ROOT, check=True, capture_output=True)
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 95
        assert "Failed to validate networking configuration" in done.stdout, done.stdout
        assert install(place, "install", "-o", "4141", command=SPONSON).returncode == 0
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout
        assert " INFO linkerd_network_validator: Validated\n" in done.stdout


def rules(place: Place, name: str) -> dict[str, list[str]]:
    """The rules of both address families, in order; how a version of iptables quotes a comment makes no difference."""
    kinds = ("iptables-legacy", "ip6tables-legacy") if "legacy" in name else ("iptables-nft", "ip6tables-nft")
    saved = {kind: place.saved(kind).replace('"', "").splitlines() for kind in kinds}
    return {kind: [line for line in lines if "PROXY_INIT" in line] for kind, lines in saved.items()}


@pytest.mark.parametrize("name", [*ARGUMENTS, *MORE])
def test_the_rules_are_those_that_linkerds_program_made(place: Place, name: str) -> None:
    assert install(place, *(ARGUMENTS | MORE)[name]).returncode == 0
    assert rules(place, name) == RECORDED[name]


@pytest.mark.skipif(not PROXY_INIT, reason="SPONSON_TEST_PROXY_INIT names no linkerd2-proxy-init")
@pytest.mark.parametrize("name", [*ARGUMENTS, *MORE])
def test_linkerds_own_program_still_makes_them(place: Place, name: str) -> None:
    arguments = (ARGUMENTS | MORE)[name]
    done = install(place, *arguments, command=[PROXY_INIT])
    assert done.returncode == 0, done.stdout + done.stderr
    assert rules(place, name) == RECORDED[name]
    check_arrivals(place, arguments)
