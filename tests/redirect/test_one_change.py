"""Installing while it is stopped midway, while another process installs, and over rules of another form: one whole form is left."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.netns import wait_until
from tests.redirect.place import Place, why_not
from tests.redirect.test_connections import ARGUMENTS, OURS, ROOT, SPONSON, install, only

pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]

BOTH = ("iptables-nft", "ip6tables-nft")


@pytest.fixture
def place() -> Iterator[Place]:
    with Place() as made:
        yield made


def saved(place: Place) -> list[str]:
    return [place.saved(program) for program in BOTH]


def slow(folder: Path, program: str) -> list[str]:
    """`env` for a PATH on which the program says that it has come, does its work, and the first time does not end."""
    real = next(file for file in (Path(one) / program for one in os.environ["PATH"].split(":")) if file.exists())
    file = folder / program
    file.write_text(
        f'#!/bin/sh\n[ -e {folder}/reached ] && exec {real} "$@"\n{real} "$@"\ntouch {folder}/reached\nexec sleep 60\n'
    )
    file.chmod(0o755)
    return ["env", f"PATH={folder}:{os.environ['PATH']}"]


def begin(place: Place, *command: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(place.command(*command), cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("at", ["iptables-nft-restore", "ip6tables-nft-save", "ip6tables-nft-restore"])
@pytest.mark.parametrize("earlier", ["nothing", "other rules"])
def test_who_is_stopped_midway_has_changed_nothing(
    place: Place, tmp_path: Path, number: int, at: str, earlier: str
) -> None:
    if earlier == "other rules":
        install(place, *ARGUMENTS["v-ipv6"], "--inbound-ports-to-ignore", "99")
    before = saved(place)
    with begin(place, *slow(tmp_path, at), *OURS, *ARGUMENTS["v-ipv6"]) as running:
        wait_until(lambda: (tmp_path / "reached").exists(), "it is at work")
        assert running.poll() is None
        running.send_signal(number)
        running.communicate(timeout=60)
    assert running.returncode not in (0, None)
    assert saved(place) == before
    assert install(place, *ARGUMENTS["v-ipv6"]).returncode == 0
    assert all("PROXY_INIT" in one for one in saved(place))


def test_who_is_killed_is_followed_by_one_that_completes_it(place: Place, tmp_path: Path) -> None:
    with begin(place, *slow(tmp_path, "iptables-nft-restore"), *OURS, *ARGUMENTS["v-ipv6"]) as running:
        wait_until(lambda: (tmp_path / "reached").exists(), "it is at work")
        running.kill()
        running.communicate(timeout=60)
    assert ["PROXY_INIT" in one for one in saved(place)] == [True, False]
    assert install(place, *ARGUMENTS["v-ipv6"]).returncode == 0
    once = saved(place)
    install(place, "remove", command=SPONSON)
    install(place, *ARGUMENTS["v-ipv6"])
    assert saved(place) == once


def test_several_at_once_are_one_after_the_other(place: Place) -> None:
    each = [begin(place, *OURS, *ARGUMENTS["v-ipv6"], "-w") for _ in range(4)]
    for running in each:
        _, told = running.communicate(timeout=120)
        assert running.returncode == 0, told
    alone = saved(place)
    assert all(one.count("-j PROXY_INIT_REDIRECT") == one.count("-j PROXY_INIT_OUTPUT") == 1 for one in alone)
    install(place, "remove", command=SPONSON)
    install(place, *ARGUMENTS["v-ipv6"])
    assert saved(place) == alone


@pytest.mark.parametrize("by_path", [False, True])
def test_who_waits_in_vain_says_for_whom(place: Place, tmp_path: Path, by_path: bool) -> None:
    with begin(place, *slow(tmp_path, "iptables-nft-restore"), *OURS, *ARGUMENTS["v-ipv6"]) as running:
        wait_until(lambda: (tmp_path / "reached").exists(), "it is at work")
        if by_path:
            command = [*SPONSON, "remove", "--netns", f"/run/netns/{place.pod}"]
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        else:
            done = install(place, "remove", command=SPONSON)
        assert done.returncode == 1
        assert "another process has been changing its rules for 5 s" in done.stderr
        running.terminate()
        running.communicate(timeout=60)


FORMS = {
    "nft": ["--iptables-mode", "nft"], "legacy": ["--iptables-mode", "legacy"], "plain": ["--iptables-mode", "plain"],
    "a table": ["--nftables"],
}  # fmt: skip


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_another_form_replaces_the_one_before(place: Place, first: str, second: str) -> None:
    assert install(place, "install", *FORMS[first], command=SPONSON).returncode == 0
    done = install(place, "install", *FORMS[second], "-p", "5143", command=SPONSON)
    assert done.returncode == 0, done.stderr
    shown = install(place, "show", command=SPONSON).stdout
    assert "5143" in shown and "4143" not in shown
    assert shown.count("# iptables") + shown.count("table inet") == 1
    assert install(place, "remove", command=SPONSON).returncode == 0
    assert install(place, "show", command=SPONSON).returncode == 1


def test_ipv6_that_is_no_longer_asked_for_goes(place: Place) -> None:
    assert install(place, "install", command=SPONSON).returncode == 0
    assert install(place, "install", "--ipv6=false", command=SPONSON).returncode == 0
    assert ["PROXY_INIT" in one for one in saved(place)] == [True, False]


def test_without_the_programs_of_ipv6(place: Place, tmp_path: Path) -> None:
    path = only(tmp_path, *(f"iptables-nft{ending}" for ending in ("", "-save", "-restore")))
    done = install(place, "install", command=[*path, *SPONSON])
    assert done.returncode == 1 and "ip6tables-nft-save: not found on PATH" in done.stderr
    assert not any("PROXY_INIT" in one for one in saved(place))
    assert install(place, "install", "--ipv6=false", command=[*path, *SPONSON]).returncode == 0
    assert install(place, "show", command=[*path, *SPONSON]).stdout.startswith("# iptables-nft -t nat\n")
    assert install(place, "remove", command=[*path, *SPONSON]).returncode == 0
    assert not any("PROXY_INIT" in one for one in saved(place))


@pytest.mark.parametrize("action", ["show", "remove"])
def test_without_any_program_it_is_not_said_that_nothing_is_installed(place: Place, action: str) -> None:
    done = install(place, action, command=["env", "PATH=/nowhere", *SPONSON])
    assert done.returncode == 1
    assert done.stderr == "sponson redirect: neither iptables nor nft on PATH: what is installed cannot be seen\n"
    assert done.stdout == ""


@pytest.mark.parametrize(("arguments", "told"), [
    (["-p", "4143", "-o", "4143"], "--incoming-proxy-port and --outgoing-proxy-port are both 4143"),
    (["-p", "0"], "--incoming-proxy-port must be a valid TCP port number"),
    (["--proxy-uid", "4294967295"], "--proxy-uid: 4294967295 is no user id"),
    (["--proxy-gid", "99999999999"], "--proxy-gid: 99999999999 is no group id"),
    (["--nftables", "--iptables-mode", "nft"], "--nftables uses no iptables"),
    (["--subnets-to-ignore", "10.0.0.0/8 -j ACCEPT"], "10.0.0.0/8 -j ACCEPT is not a valid CIDR address"),
    (["--ports-to-redirect", "80 -j ACCEPT"], '"80 -j ACCEPT" is not a valid TCP port'),
])  # fmt: skip
def test_flags_that_cannot_be(place: Place, arguments: list[str], told: str) -> None:
    done = install(place, "install", *arguments, command=SPONSON)
    assert done.returncode == 1
    assert done.stderr.startswith(f"sponson redirect: {told}")
    assert not any("PROXY_INIT" in one for one in saved(place))


def test_neither_user_nor_group_would_redirect_the_proxy_to_itself(place: Place) -> None:
    """A number below zero is no rule, with Linkerd's program; with none at all the proxy's own user is the default."""
    assert install(place, "install", "--proxy-uid", "-1", "--proxy-gid", "-1", command=SPONSON).returncode == 0
    assert "--uid-owner 2102" in saved(place)[0]
