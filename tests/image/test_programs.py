"""What is in the image, and that its programs work as any user, on a read-only root, without capabilities and without
HOME.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.image.conftest import IMAGE
from tests.image.kubelet import RUNTIME

LOCKED_DOWN = ["--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--network", "none", "--unsetenv", "HOME"]
LOCKED_DOWN += ["--security-opt", "no-new-privileges"]
LIMIT_MB = 150


def podman(*arguments: str, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=timeout_s)


def run(*command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    return podman("run", "--rm", *options, IMAGE, *command)


def python(code: str, *options: str) -> str:
    done = run("/usr/bin/python3", "-IBc", code, options=("--user", "0", *options))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def image() -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(podman("image", "inspect", IMAGE).stdout)
    return found[0]


def test_it_is_small_and_says_what_it_is(image: dict[str, Any]) -> None:
    assert image["Size"] < LIMIT_MB * 1_000_000
    labels = image["Labels"]
    for name in ("title", "description", "licenses", "version", "revision", "base.name"):
        assert labels[f"org.opencontainers.image.{name}"]
    revision = python("print(open('/usr/share/sponson/revision').read())").strip()
    assert labels["org.opencontainers.image.revision"] == revision
    config = image["Config"]
    assert config["Cmd"] == ["/usr/lib/linkerd/linkerd2-proxy-identity"] and not config.get("Entrypoint")
    assert config["User"] == "2102"
    assert set(config["ExposedPorts"]) == {f"{port}/tcp" for port in (4140, 4143, 4190, 4191)}


def test_only_iptables_and_its_launcher_have_capabilities() -> None:
    code = (
        "import os\nfor root, _, names in os.walk('/'):\n"
        "  if root.startswith(('/proc', '/sys', '/dev')): continue\n"
        "  for name in names:\n"
        "    path = os.path.join(root, name)\n"
        "    mode = os.lstat(path).st_mode\n"
        "    if not os.path.islink(path) and 'security.capability' in os.listxattr(path): print('capable', path)\n"
        "    if mode & 0o6000: print('setuid', path)\n"
    )
    assert sorted(python(code).split("\n")[:-1]) == [
        "capable /usr/lib/linkerd/linkerd2-proxy-init",
        "capable /usr/sbin/xtables-legacy-multi",
        "capable /usr/sbin/xtables-nft-multi",
    ]


def test_there_is_nothing_to_build_or_install_with() -> None:
    code = "import shutil; print(*filter(shutil.which, 'sh bash dash busybox gcc cc make pip pip3 apt apt-get dpkg perl'.split()))"
    assert python(code) == "\n"
    assert (
        python(
            "import importlib.util as u; print(*[n for n in ('pip', 'setuptools', 'ensurepip', 'mypy') if u.find_spec(n)])"
        )
        == "\n"
    )


def test_bytecode_is_inside_for_every_module() -> None:
    code = (
        "import importlib.util, os, sys\nfor top in ('/usr/lib/python3.13', '/usr/local/lib/python3.13/dist-packages'):\n"
        "  for root, _, names in os.walk(top):\n"
        "    for name in names:\n"
        "      path = os.path.join(root, name)\n"
        "      if name.endswith('.py') and not os.path.exists(importlib.util.cache_from_source(path)): print(path)\n"
    )
    # A module of some package that is written for another Python has none.
    missing = [line for line in python(code).split() if "/proxy/" in line or line.startswith("/usr/lib/python3.13/")]
    assert missing == []


def test_the_bill_of_materials_has_what_is_installed() -> None:
    bill = json.loads(python("print(open('/usr/share/sponson/sbom.cdx.json').read())"))
    purls = {component["purl"].partition("@")[0] for component in bill["components"]}
    assert {"pkg:deb/debian/iptables", "pkg:deb/debian/libssl3t64", "pkg:pypi/uvloop", "pkg:pypi/sponson"} <= purls
    names = set(
        python(
            "import importlib.metadata as m; print(*[d.metadata['Name'].lower() for d in m.distributions()])"
        ).split()
    )
    assert {f"pkg:pypi/{name}" for name in names} <= purls


def test_python_and_openssl_are_debian_13s() -> None:
    found = python("import ssl, sys; print(*sys.version_info[:2], *ssl.OPENSSL_VERSION_INFO[:2])").split()
    assert found == ["3", "13", "3", "5"]


@pytest.mark.parametrize("user", ["1234:1234", "2102", "65534:65534", "0:0"])
def test_every_command_starts_as_any_user(user: str) -> None:
    options = (*LOCKED_DOWN, "--user", user)
    assert run("sponson", "--version", options=options).stdout.startswith("sponson ")
    for command in ("run", "mesh", "demo", "inject", "redirect", "await", "validate-network"):
        done = run("sponson", command, "--help", options=options)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"usage: sponson {command}")


def test_nothing_needs_a_home() -> None:
    """podman gives every container a HOME, whatever its options say; other runtimes do not."""
    code = (
        "import os, subprocess\n"
        "environment = {name: value for name, value in os.environ.items() if name != 'HOME'}\n"
        "for command in (['run'], ['demo', '--duration', '1s', '--json'], ['await', '--timeout', '1ms'], ['redirect', 'install', '--dry-run']):\n"
        "  done = subprocess.run(['sponson', *command], env=environment, capture_output=True, text=True)\n"
        "  print(command[0], done.returncode, 'Traceback' in done.stderr)\n"
    )
    done = run("/usr/bin/python3", "-IBc", code, options=(*LOCKED_DOWN, "--user", "1234:1234"))
    assert done.stdout.splitlines() == ["run 64 False", "demo 0 False", "await 69 False", "redirect 0 False"], (
        done.stderr
    )


@pytest.mark.parametrize(("command", "status", "told"), [
    (["/usr/lib/linkerd/linkerd-await", "--timeout=50ms", "--port=4191"], 69, "failed to become ready within 50ms timeout"),
    (["/usr/lib/linkerd/linkerd2-network-validator", "--timeout", "1s"], 95, "ERROR linkerd_network_validator: "),
    (["/usr/lib/linkerd/linkerd2-proxy"], 64, "Invalid configuration: no destination service configured"),
    (["/usr/lib/linkerd/linkerd2-proxy-identity"], 64, "Invalid configuration: no destination service configured"),
    (["/usr/lib/linkerd/linkerd2-proxy-init", "-p", "4143"], 1, "--outgoing-proxy-port must be a valid TCP port number"),
    (["/usr/lib/linkerd/linkerd2-proxy-init", "-p", "4143", "-o", "4140", "--iptables-mode", "nft"], 1, "NET_ADMIN"),
    (["/bin/sleep", "0"], 0, ""),
    ([], 64, "Invalid configuration"),
])  # fmt: skip
def test_the_paths_that_pods_name(command: list[str], status: int, told: str) -> None:
    done = run(*command, options=(*LOCKED_DOWN, "--user", "65534:65534"))
    assert done.returncode == status, done.stderr
    assert told in done.stdout + done.stderr


def test_an_init_container_has_its_capabilities_only_from_its_file() -> None:
    """A kubelet starts a container without ambient capabilities, so a script could not run iptables, whatever
    capabilities that file has.
    """
    options = (
        "--user",
        "65534:65534",
        "--read-only",
        "--security-opt",
        "no-new-privileges",
        "--runtime",
        RUNTIME,
        "--network",
        "none",
    )
    rights = ("--cap-add", "NET_ADMIN", "--cap-add", "NET_RAW")
    init = ["/usr/lib/linkerd/linkerd2-proxy-init", "-p", "4143", "-o", "4140", "-u", "2102", "--iptables-mode"]
    # Linkerd's injector gives the sidecar the application's capabilities: after `drop: [ALL]` only those two remain.
    for mode, given in (("nft", rights), ("plain", rights), ("nft", ("--cap-drop", "all", *rights))):
        done = run(*init, mode, options=(*options, *given))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "PROXY_INIT_OUTPUT" in done.stdout
    assert run("sponson", "redirect", "install", options=(*options, *rights)).returncode == 1


@pytest.mark.parametrize("options", [(), (*LOCKED_DOWN, "--user", "1234:1234")])
def test_the_demo(options: tuple[str, ...]) -> None:
    done = run("sponson", "demo", "--duration", "2s", "--rps", "20", "--json", options=options)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["requests"] and told["successes"] == told["requests"]


def test_the_small_commands_are_soon_over() -> None:
    """The small commands end quickly, because a pod waits for each of them. The time is the command's own, the best of
    several runs, as the machine may be busy.
    """
    code = (
        "import subprocess, time\nfor c in (['linkerd-await', '--timeout', '1ms'], ['linkerd2-network-validator', '--timeout', '1ms']):\n"
        "  best = 9.0\n"
        "  for _ in range(15):\n"
        "    at = time.process_time(), sum(__import__('os').times()[2:4])\n"
        "    subprocess.run(['/usr/lib/linkerd/' + c[0], *c[1:]], capture_output=True)\n"
        "    best = min(best, sum(__import__('os').times()[2:4]) - at[1])\n"
        "  print(best)\n"
    )
    done = run("/usr/bin/python3", "-IBc", code, options=tuple(LOCKED_DOWN))
    for best_s in done.stdout.split():
        assert float(best_s) <= 0.1, done.stdout


def test_python_starts_without_looking_at_the_environment() -> None:
    done = run(
        "sponson",
        "--version",
        options=("--env", "PYTHONPATH=/nowhere", "--env", "PYTHONSTARTUP=/x", "--env", "PYTHONHOME=/y"),
    )
    assert done.returncode == 0, done.stderr
