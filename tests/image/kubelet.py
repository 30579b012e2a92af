"""A kubelet for one pod, by podman: init containers in order, sidecars, probes, hooks, and the order of the end.

What Kubernetes documents: init containers run one after the other to their end; one with `restartPolicy: Always` is a
sidecar, and the next starts when its startup probe has succeeded. Containers start in order, each after the postStart hook
of the one before. At the end preStop hooks run, then every container gets SIGTERM; sidecars get theirs, in reverse order,
when all the others have ended.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.image.rendered import environment, rendered
from tests.kit.netns import Pod, inside, wait_until

ROOT = Path(__file__).parents[2]
RUNTIME = str(Path(__file__).parent / "runtime.py")
PROBE_S = 2.0
START_S = 120.0
"""As long as the rendered startup probe allows: 120 tries, one a second."""
_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


class InitFailed(Exception):
    """An init container ended with a status other than 0; `status` and `log` show which and why."""

    def __init__(self, name: str, status: int, log: str) -> None:
        super().__init__(f"{name} ended with {status}:\n{log}")
        self.status = status
        self.log = log


class Kubelet:
    """Runs one pod in an existing namespace; everything that it started ends with it."""

    def __init__(
        self, pod: Pod, spec: dict[str, Any], token: str, ips: tuple[str, ...], patch: dict[str, str], account: str
    ) -> None:
        """`ips` are the pod's addresses. `patch` replaces variables of the proxy: where the control plane is, when it is
        not Linkerd's."""
        self.pod = pod
        self.spec = spec
        self.ips = ips
        self.account = account
        self.namespace = "default"
        self.patch = patch
        self.folder = pod.network.folder / f"kubelet-{pod.name}"
        self.options: list[str] = []
        """More arguments of `podman run` for every container."""
        self.started: list[str] = []
        """Containers that were left running, in order."""
        self._pids: dict[str, int] = {}
        self.events: list[str] = []
        """What happened, in order: `started X`, `ended X 0`."""
        self._volumes = self._make_volumes(token)

    # ---- start

    def start(self) -> None:
        """Start the pod. InitFailed, or a TimeoutError of a probe."""
        for container in self.spec["initContainers"]:
            if container.get("restartPolicy") == "Always":
                self._launch(container)
                self._wait_for_probe(container, "startupProbe")
            else:
                done = self._podman(*self._arguments(container, "run"), is_checked=False)
                self.events.append(f"ended {container['name']} {done.returncode}")
                if done.returncode:
                    raise InitFailed(container["name"], done.returncode, done.stdout + done.stderr)
        for container in self.spec["containers"]:
            self._launch(container)
            hook = container.get("lifecycle", {}).get("postStart", {}).get("exec", {}).get("command")
            if hook:
                done = self.exec(container["name"], *hook)
                self.events.append(f"postStart {container['name']} {done.returncode}")
                assert done.returncode == 0, done.stdout + done.stderr

    def _launch(self, container: dict[str, Any]) -> None:
        self._podman(*self._arguments(container, "run", "--detach"))
        self.started.append(container["name"])
        self._pids[container["name"]] = self.pid(container["name"])
        self.events.append(f"started {container['name']}")

    def _wait_for_probe(self, container: dict[str, Any], kind: str) -> None:
        probe = container.get(kind)
        if probe:
            wait_until(lambda: self._probe(container, probe), f"{kind} of {container['name']} succeeds", START_S)

    def _probe(self, container: dict[str, Any], probe: dict[str, Any]) -> bool:
        if not self.is_running(container["name"]):
            raise AssertionError(f"{container['name']} has ended:\n{self.log(container['name'])}")
        return self.get(probe["httpGet"]["port"], probe["httpGet"]["path"]) == 200

    def get(self, port: int, path: str) -> int:
        """The status of a GET from the node, where the kubelet asks from, and not from the pod's loopback; 0 if there
        is no answer.
        """
        # There is no process for each request, because that would take the CPU time that the pod needs to start.
        with inside(self.pod.network.bridge):
            asking = socket.socket(socket.AF_INET6 if ":" in self.pod.ip else socket.AF_INET)
        with asking:
            asking.settimeout(PROBE_S)
            try:
                asking.connect((self.pod.ip, port))
                asking.sendall(f"GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n".encode())
                words = asking.makefile("rb").readline().split(b" ")
            except OSError:
                return 0
        return int(words[1]) if words[0].startswith(b"HTTP/1.") else 0

    def metrics(self, port: int = 4191) -> str:
        """Metrics, read from the node: a policy may allow the cluster's networks and not the loopback."""
        command = ["ip", "netns", "exec", self.pod.network.bridge, "curl", "-s", "-m", "10"]
        return subprocess.run([*command, f"http://{self.pod.ip}:{port}/metrics"], capture_output=True, text=True).stdout

    def install_rules(self, variation: str) -> None:
        """Install the rules as a CNI plugin does: from outside the pod, with the arguments of another pod's init
        container.
        """
        arguments = rendered(variation, "")["initContainers"][0]["args"]
        command = [
            sys.executable,
            "-c",
            "import sys; from proxy.cli.redirect import proxy_init; sys.exit(proxy_init(sys.argv[1:]))",
        ]
        subprocess.run(
            [*command, *arguments, "--netns", f"/run/netns/{self.pod.space}"], cwd=ROOT, check=True, capture_output=True
        )

    # ---- the end

    def stop(self, grace_s: int = 30) -> dict[str, int]:
        """Stop the pod. Returns exit statuses by container name."""
        sidecars = [one["name"] for one in self.spec["initContainers"] if one["name"] in self.started]
        mains = [one["name"] for one in self.spec["containers"] if one["name"] in self.started]
        statuses = self._end(mains, grace_s)
        for name in reversed(sidecars):
            statuses |= self._end([name], grace_s)
        return statuses

    def _end(self, names: list[str], grace_s: int) -> dict[str, int]:
        hooks = [self.begin_pre_stop(name) for name in names]
        for hook in hooks:
            if hook is not None:
                hook.wait(grace_s)
        for name in names:
            self._podman("kill", "--signal", "TERM", self._name(name), is_checked=False)
        return {name: self.wait(name, grace_s) for name in names}

    def begin_pre_stop(self, name: str) -> subprocess.Popen[bytes] | None:
        """Start the container's preStop hook, if it has one."""
        container = next(one for one in self._every() if one["name"] == name)
        command = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if not command or not self.is_running(name):
            return None
        self.events.append(f"preStop {name}")
        return subprocess.Popen(["podman", "exec", self._name(name), *command])

    def wait(self, name: str, timeout_s: float = START_S) -> int:
        """Wait until this container ends. Returns its exit status."""
        wait_until(lambda: not self.is_running(name), f"{name} ends", timeout_s)
        status = int(self._inspect(name)["State"]["ExitCode"])
        self.events.append(f"ended {name} {status}")
        return status

    def close(self) -> None:
        for container in self._every():
            self._podman("rm", "--force", "--ignore", "--time", "0", self._name(container["name"]), is_checked=False)

    # ---- while it runs

    def exec(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        return self._podman("exec", self._name(name), *command, is_checked=False)

    def log(self, name: str) -> str:
        done = self._podman("logs", self._name(name), is_checked=False)
        return done.stdout + done.stderr

    def is_running(self, name: str) -> bool:
        if Path(f"/proc/{self._pids.get(name) or 'none'}").exists():
            return True
        found = self._inspect(name)
        return bool(found) and bool(found["State"]["Running"])

    def pid(self, name: str) -> int:
        return int(self._inspect(name)["State"]["Pid"])

    def _inspect(self, name: str) -> dict[str, Any]:
        done = self._podman("inspect", self._name(name), is_checked=False)
        found: list[dict[str, Any]] = json.loads(done.stdout or "[]")
        return found[0] if found else {}

    # ---- podman

    def _arguments(self, container: dict[str, Any], *verb: str) -> list[str]:
        context = container.get("securityContext", {})
        found = [*verb, "--name", self._name(container["name"]), "--network", f"ns:/run/netns/{self.pod.space}"]
        found += ["--runtime", RUNTIME, "--unsetenv", "HOME", "--hostname", self.pod.name, *self.options]
        if not verb[1:]:
            found += ["--rm"]
        if "runAsUser" in context:
            user = str(context["runAsUser"])
            found += ["--user", f"{user}:{context['runAsGroup']}" if "runAsGroup" in context else user]
        if context.get("privileged"):
            found += ["--privileged"]
        else:
            if context.get("allowPrivilegeEscalation") is False:
                found += ["--security-opt", "no-new-privileges"]
            capabilities = context.get("capabilities", {})
            found += [f"--cap-drop={name.lower()}" for name in capabilities.get("drop", [])]
            found += [f"--cap-add={name}" for name in capabilities.get("add", [])]
        if context.get("readOnlyRootFilesystem"):
            found += ["--read-only", "--read-only-tmpfs=false"]
        for mount in container.get("volumeMounts", []):
            ending = ":ro" if mount.get("readOnly") else ""
            found += ["--volume", f"{self._volumes[mount['name']]}:{mount['mountPath']}{ending}"]
        variables = environment(container, self.fields())
        if container["name"] == "linkerd-proxy":
            variables |= self.patch
        for name, value in variables.items():
            found += ["--env", f"{name}={value}"]
        return [*found, container["image"], *container.get("command", []), *container.get("args", [])]

    def fields(self) -> dict[str, str]:
        """The fields that the Downward API provides."""
        return {
            "metadata.name": self.pod.name,
            "metadata.namespace": self.namespace,
            "metadata.uid": "6e5a1f6c-1111-4222-8333-444455556666",
            "metadata.labels": 'app="web"\n',
            "status.podIP": self.pod.ip,
            "status.podIPs": ",".join(self.ips),
            "spec.nodeName": "node-a",
            "spec.serviceAccountName": self.account,
        }

    def _make_volumes(self, token: str) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for volume in self.spec["volumes"]:
            folder = found[volume["name"]] = self.folder / volume["name"]
            folder.mkdir(parents=True)
            folder.chmod(0o777)
            for source in volume.get("projected", {}).get("sources", []):
                path = source.get("serviceAccountToken", {}).get("path")
                if path:
                    (folder / path).write_text(token)
            for item in volume.get("downwardAPI", {}).get("items", []):
                (folder / item["path"]).write_text(self.fields()[item["fieldRef"]["fieldPath"]])
        return found

    def _every(self) -> Iterator[dict[str, Any]]:
        yield from self.spec["initContainers"]
        yield from self.spec["containers"]

    def _name(self, container: str) -> str:
        return f"{self.pod.space}-{container}"

    def _podman(self, *arguments: str, is_checked: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=300)
        assert not is_checked or done.returncode == 0, f"podman {' '.join(arguments[:3])}: {done.stderr}"
        return done


def why_not(image: str) -> str:
    """Why pods cannot be run here; empty if they can."""
    if not image:
        return "SPONSON_TEST_IMAGE names no image: make test-image"
    missing = [program for program in ("podman", "runc", "curl") if shutil.which(program) is None]
    if missing:
        return f"containers need {', '.join(missing)}"
    if subprocess.run(["podman", "image", "exists", image], capture_output=True).returncode:
        return f"there is no image {image}: make image"
    return ""


@contextlib.contextmanager
def running(kubelet: Kubelet, prepare: Callable[[], None] = lambda: None) -> Iterator[Kubelet]:
    """A started pod, which is removed afterwards."""
    try:
        prepare()
        kubelet.start()
        yield kubelet
    finally:
        kubelet.close()
