"""The manifests of an app that is up: a workload for each replica, and one service for all of a name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from proxy.mesh.apps import App
from proxy.mesh.model import identity_of
from proxy.mesh.state import write_file

_HEAD: Final = "# Written by `sponson up`, which removes it when the app has gone.\n"


class Manifest:
    """Two files in the directory that the control plane reads."""

    __slots__ = ("_directory", "_app", "_service_port")

    def __init__(self, directory: Path, app: App, service_port: int) -> None:
        self._directory = directory
        self._app = app
        self._service_port = service_port

    def write(self) -> None:
        """StateError if the files cannot be written."""
        app = self._app
        if app.port:
            write_file(self._service_file, _service(app, self._service_port).encode(), 0o644)
        write_file(self._workload_file, _workload(app).encode(), 0o644)

    def remove(self) -> None:
        """Remove this replica's manifest, and the service's if it was the last one."""
        self._workload_file.unlink(missing_ok=True)
        others = self._directory.glob(f"up.{self._app.namespace}.{self._app.name}-*.yaml")
        if not any(path.stem.rpartition("-")[2].isdigit() for path in others):
            self._service_file.unlink(missing_ok=True)

    @property
    def _service_file(self) -> Path:
        return self._directory / f"up.{self._app.namespace}.{self._app.name}.yaml"

    @property
    def _workload_file(self) -> Path:
        return self._directory / f"up.{self._app.namespace}.{self._app.workload}.yaml"


def _service(app: App, port: int) -> str:
    return f"""\
{_HEAD}apiVersion: v1
kind: Service
metadata: {{name: {app.name}, namespace: {app.namespace}}}
spec:
  selector: {{app: {app.name}}}
  ports: [{{name: http, port: {port}, targetPort: http}}]
"""


def _workload(app: App) -> str:
    identity = identity_of(app.name, app.namespace)
    ports = f"[{{name: http, port: {app.port}}}]" if app.port else "[]"
    return f"""\
{_HEAD}apiVersion: workload.linkerd.io/v1beta1
kind: ExternalWorkload
metadata:
  name: {app.workload}
  namespace: {app.namespace}
  labels: {{app: {app.name}}}
  annotations: {{sponson.io/inbound-port: "{app.inbound}"}}
spec:
  meshTLS: {{identity: {identity}, serverName: {identity}}}
  workloadIPs: [{{ip: 127.0.0.1}}]
  ports: {ports}
"""
