"""Installing while it is stopped midway, while another process installs, and over rules of another form: one whole form is left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.netns import wait_until
from tests.redirect.place import OUTSIDE, POD, Place, arrives, why_not
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
    return before_path(folder)


def before_path(folder: Path) -> list[str]:
    """`env` for a PATH on which the folder comes first."""
    return ["env", f"PATH={folder}:{os.environ['PATH']}"]


def begin(place: Place, *command: str, start_new_session: bool = False) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        place.command(*command), cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=start_new_session
    )


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


def killed_between_the_families(place: Place, folder: Path, *command: str) -> None:
    """SIGKILL when IPv4 is changed and IPv6 is not; its programs too, as when a container ends."""
    with begin(place, *slow(folder, "iptables-nft-restore"), *command, start_new_session=True) as running:
        wait_until(lambda: (folder / "reached").exists(), "IPv4 is changed")
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate(timeout=60)


def reached(place: Place) -> dict[str, str]:
    """Whom connections of each direction and family reach."""
    return {
        f"{direction} IPv{6 if is_ipv6 else 4}": arrives(space, (address[is_ipv6], port))
        for direction, space, address, port in (("out", place.pod, OUTSIDE, 80), ("in", place.outside, POD, 8080))
        for is_ipv6 in (False, True)
    }


@pytest.mark.parametrize("earlier", ["nothing", "other rules"])
@pytest.mark.parametrize("then", ["the init container again", "install", "remove"])
def test_what_someone_who_was_killed_left_half_done_is_made_whole(
    place: Place, tmp_path: Path, earlier: str, then: str
) -> None:
    for port, name in ((4143, "inbound"), (4140, "outbound"), (8080, "app")):
        place.listen(place.pod, port, name)
    place.listen(place.outside, 80, "outside")
    init = [*OURS, *ARGUMENTS["v-ipv6"]]
    follower = {
        "the init container again": init,
        "install": [*SPONSON, "install"],
        "remove": [*SPONSON, "remove"],
    }[then]
    assert install(place, command=follower).returncode == 0
    undisturbed = saved(place)
    assert install(place, "remove", command=SPONSON).returncode == 0
    if earlier == "other rules":
        # Neither port is listened on.
        assert install(place, "install", "-p", "5143", "-o", "5140", command=SPONSON).returncode == 0
    killed_between_the_families(place, tmp_path, *init)
    half = reached(place)
    untouched = ("refused", "refused") if earlier == "other rules" else ("outside", "app")
    assert (half["out IPv4"], half["in IPv4"]) == ("outbound", "inbound")
    assert (half["out IPv6"], half["in IPv6"]) == untouched

    assert install(place, command=follower).returncode == 0
    redirected, direct = {"out": "outbound", "in": "inbound"}, {"out": "outside", "in": "app"}
    wanted = direct if then == "remove" else redirected
    assert reached(place) == {f"{way} IPv{version}": name for way, name in wanted.items() for version in (4, 6)}
    assert sorted("\n".join(saved(place)).splitlines()) == sorted("\n".join(undisturbed).splitlines())


@pytest.mark.parametrize("then", ["install", "remove"])
def test_a_removal_that_was_killed_is_completed_or_undone(place: Place, tmp_path: Path, then: str) -> None:
    assert install(place, "install", command=SPONSON).returncode == 0
    whole = saved(place)
    killed_between_the_families(place, tmp_path, *SPONSON, "remove")
    assert ["PROXY_INIT" in one for one in saved(place)] == [False, True]
    done = install(place, then, command=SPONSON)
    assert done.returncode == 0 and "nothing was installed" not in done.stdout
    if then == "install":
        assert saved(place) == whole
    else:
        assert not any("PROXY_INIT" in one for one in saved(place))


def test_a_program_that_outlives_who_was_killed_is_waited_for(place: Place, tmp_path: Path) -> None:
    """Else it would add its rules to those that somebody else has made meanwhile, who had seen none."""
    orphan, follower, go = tmp_path / "orphan", tmp_path / "follower", tmp_path / "go"
    order = tmp_path / "order"
    for folder, name, script in (
        (orphan, "iptables-nft-restore", f'touch {orphan}/reached\nwhile [ ! -e {go} ]; do sleep 0.05; done\n%s "$@"\necho orphan >> {order}\n'),
        (follower, "iptables-nft-save", f'echo follower >> {order}\nexec %s "$@"\n'),
    ):  # fmt: skip
        folder.mkdir()
        (folder / name).write_text("#!/bin/sh\n" + script % shutil.which(name))
        (folder / name).chmod(0o755)
    with begin(place, *before_path(orphan), *OURS, *ARGUMENTS["v-ipv6"]) as running:
        wait_until(lambda: (orphan / "reached").exists(), "its program is at work")
        running.kill()
        running.wait(timeout=60)
        with begin(place, *before_path(follower), *OURS, *ARGUMENTS["v-ipv6"]) as second:
            # It must not look yet. How long it may wait is known: five seconds.
            with contextlib.suppress(TimeoutError):
                wait_until(order.exists, "it looks", timeout_s=2)
            go.touch()
            _, told = second.communicate(timeout=60)
    assert second.returncode == 0, told
    assert order.read_text().split()[:2] == ["orphan", "follower"]
    after = saved(place)
    install(place, "remove", command=SPONSON)
    install(place, *ARGUMENTS["v-ipv6"])
    assert saved(place) == after


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
