"""The text of `--explain`: what each part of the demo is, and where to look."""

from __future__ import annotations

from proxy.cli.demo.mesh import CONTROL_PLANE, DemoMesh


def explained(mesh: DemoMesh) -> str:
    """Lines to read, and to copy from."""
    state = f"--state-dir {mesh.directory}/state"
    parts = [
        "What runs:",
        f"  control plane  at {mesh.server}, process {mesh.processes[CONTROL_PLANE].pid}: tells the sidecars who is where,",
        "                 who may call whom, and signs their certificates",
        *(
            f"  {one.name:<13}  an app at {app.addr} that answers after {app.delay_s * 1000:.0f} ms, in the demo's own process"
            for one, app in zip(mesh.servers, mesh.replicas, strict=True)
        ),
        "  client         the load, in the demo's own process: it sends to its sidecar, and knows of no replica",
        "Each has a sidecar, `sponson run` (inbound: what peers' sidecars connect to; outbound: where its app sends; admin: metrics):",
        *(
            f"  {one.name:<13}  inbound {one.ip}:{one.ports.inbound}, outbound {one.outbound}, admin {one.admin}, "
            f"process {mesh.processes[one.name].pid}"
            for one in (*mesh.servers, mesh.client)
        ),
        "Where to look:",
        f"  manifests      {mesh.directory}/manifests/mesh.yaml: change it, and the mesh follows",
        f"  logs           {mesh.directory}/*.log: one a process",
        f"  beliefs        sponson mesh status {state}",
        f"                 sponson mesh get endpoints {state}",
        f"  metrics        curl -s http://{mesh.client.admin}/metrics | grep outbound",
        f"  say more       curl -X PUT -d debug http://{mesh.client.admin}/proxy-log-level",
    ]
    return "\n".join(parts)
