"""Settings as the containers and volumes of a sidecar: the form that the injector gives them, field by field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from proxy.inject.environment import ACCOUNT, PROXY, Environment
from proxy.inject.settings import Settings, SettingsError

Container = dict[str, Any]

INIT: Final = "linkerd-init"
VALIDATOR: Final = "linkerd-network-validator"
DEBUG: Final = "linkerd-debug"
CONTAINERS: Final = frozenset({INIT, VALIDATOR, PROXY, DEBUG})

LOCK_VOLUME: Final = "linkerd-proxy-init-xtables-lock"
IDENTITY_VOLUME: Final = "linkerd-identity-end-entity"
TOKEN_VOLUME: Final = "linkerd-identity-token"
LABELS_VOLUME: Final = "linkerd-podinfo"
VOLUMES: Final = frozenset({LOCK_VOLUME, IDENTITY_VOLUME, TOKEN_VOLUME, LABELS_VOLUME})

_NEEDED: Final = ("NET_ADMIN", "NET_RAW")
"""The capabilities that a container needs to install the rules."""
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*(:[0-9]+/[A-Za-z0-9._/-]+)?(@[a-z0-9]+:[0-9a-f]{32,})?")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_PROGRAMS: Final = "/usr/lib/linkerd"


class Sidecar:
    """What is added to one pod."""

    __slots__ = ("_settings", "_namespace", "_ports", "_account_mount")

    def __init__(
        self, settings: Settings, linkerd_namespace: str, inbound_ports: str, account_mount: Container | None
    ) -> None:
        """`inbound_ports` are those of the pod's own containers; `account_mount` is the application's mount of its
        service account's token, if it has one."""
        self._settings: Final = settings
        self._namespace: Final = linkerd_namespace
        self._ports: Final = inbound_ports
        self._account_mount: Final = account_mount

    # ---- containers

    def first(self) -> Container:
        """The container that runs before the proxy: it installs the rules, or checks those that a CNI plugin has
        installed. SettingsError.
        """
        return self._validator() if self._settings.get("cniEnabled") else self._init()

    def _init(self) -> Container:
        get = self._settings.get
        mounts = [{"mountPath": get("proxyInit.xtMountPath.mountPath"), "name": get("proxyInit.xtMountPath.name")}]
        return {
            "name": INIT,
            **self._image(),
            "command": [f"{_PROGRAMS}/linkerd2-proxy-init"],
            "args": list(self._init_arguments()),
            **self._resources(),
            "securityContext": self._init_context(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [*mounts, *self._account_mounts()],
        }

    def _init_arguments(self) -> Iterator[str]:
        get, text = self._settings.get, self._settings.text
        mode = get("proxyInit.iptablesMode")
        if mode not in ("nft", "legacy"):
            raise SettingsError(f"proxyInit.iptablesMode is nft or legacy, not {mode!r}")
        if mode == "nft":
            yield from ("--firewall-bin-path", "iptables-nft", "--firewall-save-bin-path", "iptables-nft-save")
        if get("disableIPv6"):
            yield "--ipv6=false"
        yield from ("--incoming-proxy-port", text("proxy.ports.inbound"))
        yield from ("--outgoing-proxy-port", text("proxy.ports.outbound"))
        yield from ("--proxy-uid", text("proxy.uid"))
        if get("proxy.gid") >= 0:
            yield from ("--proxy-gid", text("proxy.gid"))
        skipped = [text("proxy.ports.control"), text("proxy.ports.admin"), text("proxyInit.ignoreInboundPorts")]
        yield from ("--inbound-ports-to-ignore", ",".join(filter(None, skipped)))
        if get("proxyInit.closeWaitTimeoutSecs") and not get("proxyInit.runAsRoot"):
            raise SettingsError("proxyInit.runAsRoot must be set to use proxyInit.closeWaitTimeoutSecs")
        for flag, path in (
            ("--outbound-ports-to-ignore", "proxyInit.ignoreOutboundPorts"),
            ("--timeout-close-wait-secs", "proxyInit.closeWaitTimeoutSecs"),
            ("--log-format", "proxyInit.logFormat"),
            ("--log-level", "proxyInit.logLevel"),
            ("--subnets-to-ignore", "proxyInit.skipSubnets"),
        ):
            if get(path):
                yield from (flag, text(path))

    def _init_context(self) -> Container:
        get = self._settings.get
        is_privileged = bool(get("proxyInit.closeWaitTimeoutSecs") or get("proxyInit.privileged"))
        is_root = bool(get("proxyInit.runAsRoot"))
        return {
            "allowPrivilegeEscalation": is_privileged,
            "capabilities": self._init_capabilities(),
            "privileged": is_privileged,
            "readOnlyRootFilesystem": True,
            "runAsGroup": 0 if is_root else get("proxyInit.runAsGroup") or 65534,
            "runAsNonRoot": not is_root,
            "runAsUser": 0 if is_root else get("proxyInit.runAsUser") or 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        }

    def _init_capabilities(self) -> dict[str, list[str]]:
        """The proxy's capabilities, if it has any, and those that installing the rules needs."""
        get = self._settings.get
        given = get("proxy.capabilities") if self._proxy_capabilities() else get("proxyInit.capabilities")
        found = {"add": [*_NEEDED, *given["add"]], "drop": [name for name in given["drop"] if name not in _NEEDED]}
        return {verb: names for verb, names in found.items() if names}

    def _proxy_capabilities(self) -> dict[str, list[str]]:
        return {verb: names for verb, names in self._settings.get("proxy.capabilities").items() if names}

    def _validator(self) -> Container:
        get = self._settings.get
        is_ipv4 = bool(get("disableIPv6"))
        connect = get("networkValidator.connectAddr") or ("1.1.1.1:20001" if is_ipv4 else "[fd00::1]:20001")
        # Linkerd's chart has port 4140 here whatever proxy.ports.outbound says; the rules lead to the latter.
        listen = (
            get("networkValidator.listenAddr") or f"{'0.0.0.0' if is_ipv4 else '[::]'}:{get('proxy.ports.outbound')}"
        )
        made = {
            "name": VALIDATOR,
            **self._image(),
            "command": [f"{_PROGRAMS}/linkerd2-network-validator"],
            "args": ["--log-format", get("networkValidator.logFormat"), "--log-level", get("networkValidator.logLevel"),
                     "--connect-addr", connect, "--listen-addr", listen, "--timeout", get("networkValidator.timeout")],
            **self._resources(),
        }  # fmt: skip
        if get("networkValidator.enableSecurityContext"):
            made["securityContext"] = get("networkValidator.securityContext")
        return made

    def proxy(self) -> Container:
        get = self._settings.get
        admin = get("proxy.ports.admin")
        is_native = bool(get("proxy.nativeSidecar"))
        made: Container = {
            "name": PROXY,
            **self._image(),
            "env": list(Environment(self._settings, self._namespace, self._ports).variables()),
            "ports": [
                {"containerPort": get("proxy.ports.inbound"), "name": "linkerd-proxy"},
                {"containerPort": admin, "name": "linkerd-admin"},
            ],
            **self._resources(),
            "securityContext": get("proxy.securityContext") or self._context(),
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        for kind, path in (("liveness", "/live"), ("readiness", "/ready"), ("startup", "/ready")):
            if kind != "startup" or (is_native and get("proxy.await")):
                made[f"{kind}Probe"] = {"httpGet": {"path": path, "port": admin}, **get(f"proxy.{kind}Probe")}
        hooks = {} if is_native else self._hooks()
        if hooks:
            made["lifecycle"] = hooks
        made["volumeMounts"] = list(self._mounts())
        if is_native:
            made["restartPolicy"] = "Always"
        return made

    def debug(self) -> Container:
        """Linkerd's container with tcpdump and similar tools, if it is asked for."""
        get = self._settings.get
        version = get("debugContainer.image.version") or get("linkerdVersion")
        alive = {"exec": {"command": ["true"]}}
        return {
            "name": DEBUG,
            "image": image_of(get("debugContainer.image.name"), version, "debugContainer.image"),
            "imagePullPolicy": get("debugContainer.image.pullPolicy") or get("imagePullPolicy"),
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "livenessProbe": alive,
            "readinessProbe": dict(alive),
        }

    def _image(self) -> Container:
        get = self._settings.get
        version = get("proxy.image.version") or get("linkerdVersion")
        return {
            "image": image_of(get("proxy.image.name"), version, "proxy.image"),
            "imagePullPolicy": get("proxy.image.pullPolicy") or get("imagePullPolicy"),
        }

    def _resources(self) -> Container:
        found: dict[str, dict[str, str]] = {}
        for resource, bounds in self._settings.get("proxy.resources").items():
            for bound, value in bounds.items():
                if value:
                    found.setdefault(f"{bound}s", {})[resource] = str(value)
        return {"resources": found} if found else {}

    def _context(self) -> Container:
        get = self._settings.get
        group = {"runAsGroup": get("proxy.gid")} if get("proxy.gid") >= 0 else {}
        capabilities = self._proxy_capabilities()
        return {
            "allowPrivilegeEscalation": False,
            **({"capabilities": capabilities} if capabilities else {}),
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "runAsUser": get("proxy.uid"),
            **group,
            "seccompProfile": {"type": "RuntimeDefault"},
        }

    def _hooks(self) -> Container:
        get = self._settings.get
        hooks: Container = {}
        if get("proxy.await"):
            command = [f"{_PROGRAMS}/linkerd-await", "--timeout=2m", f"--port={get('proxy.ports.admin')}"]
            hooks["postStart"] = {"exec": {"command": command}}
        if get("proxy.waitBeforeExitSeconds"):
            hooks["preStop"] = {"exec": {"command": ["/bin/sleep", str(get("proxy.waitBeforeExitSeconds"))]}}
        return hooks

    # ---- volumes

    def volumes(self) -> list[Container]:
        get = self._settings.get
        found: list[Container] = []
        if not get("cniEnabled"):
            found.append({"emptyDir": {}, "name": get("proxyInit.xtMountPath.name")})
        found.append({"name": IDENTITY_VOLUME, "emptyDir": {"medium": "Memory"}})
        if get("proxy.tracing.enabled"):
            item = {"fieldRef": {"fieldPath": "metadata.labels"}, "path": "labels"}
            found.append({"downwardAPI": {"items": [item]}, "name": LABELS_VOLUME})
        if get("identity.serviceAccountTokenProjection"):
            token = {"audience": "identity.l5d.io", "expirationSeconds": 86400, "path": "linkerd-identity-token"}
            found.append({"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}})
        return found

    def _mounts(self) -> Iterator[Container]:
        get = self._settings.get
        yield {"mountPath": "/var/run/linkerd/identity/end-entity", "name": IDENTITY_VOLUME}
        if get("proxy.tracing.enabled"):
            yield {"mountPath": "/var/run/linkerd/podinfo", "name": LABELS_VOLUME}
        if get("identity.serviceAccountTokenProjection"):
            yield {"mountPath": "/var/run/secrets/tokens", "name": TOKEN_VOLUME}
        yield from self._account_mounts()

    def _account_mounts(self) -> Iterator[Container]:
        if self._account_mount is not None:
            yield {"mountPath": ACCOUNT, "name": self._account_mount["name"], "readOnly": True}


def image_of(name: str, version: str, what: str) -> str:
    """The image as a container names it; `what` is where the name was given. SettingsError."""
    if _IMAGE.fullmatch(name) is None:
        raise SettingsError(f"{what}: {name!r} is no name of an image")
    if version and _TAG.fullmatch(version) is None:
        raise SettingsError(f"{what}: {version!r} is no tag of an image")
    # A digest says already which one it is.
    return f"{name}:{version}" if version and "@" not in name else name
