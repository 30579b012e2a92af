"""Every kind that is read, those that are passed over, and those that must not be.

The directory may hold a cluster's own manifests: kinds that do not concern proxies are passed over silently, any other
unknown kind is named once. A kind that forbids something is never passed over if the proxies would not enforce it.
"""

from __future__ import annotations

from typing import Final

from proxy.mesh.kinds.annotation_names import judge_names
from proxy.mesh.kinds.checks import CHECKS
from proxy.mesh.kinds.namespace import NAMESPACE
from proxy.mesh.kinds.node import NODE
from proxy.mesh.kinds.policy.authentication.mesh_tls_authentication import MESH_TLS_AUTHENTICATION
from proxy.mesh.kinds.policy.authentication.network_authentication import NETWORK_AUTHENTICATION
from proxy.mesh.kinds.policy.authorization_policy import AUTHORIZATION_POLICY
from proxy.mesh.kinds.policy.egress_network import EGRESS_NETWORK
from proxy.mesh.kinds.policy.rate_limit import RATE_LIMIT
from proxy.mesh.kinds.policy.server import SERVER
from proxy.mesh.kinds.policy.server_authorization import SERVER_AUTHORIZATION
from proxy.mesh.kinds.policy.server_policy import SERVER_POLICY
from proxy.mesh.kinds.routes.grpc_route import GRPC_ROUTE
from proxy.mesh.kinds.routes.http_route import GATEWAY_HTTP_ROUTE, POLICY_HTTP_ROUTE
from proxy.mesh.kinds.routes.reference_grant import REFERENCE_GRANT
from proxy.mesh.kinds.routes.tcp_route import TCP_ROUTE
from proxy.mesh.kinds.routes.tls_route import TLS_ROUTE
from proxy.mesh.kinds.services.endpoint_slice import ENDPOINT_SLICE
from proxy.mesh.kinds.services.endpoints import ENDPOINTS
from proxy.mesh.kinds.services.service import SERVICE
from proxy.mesh.kinds.services.service_profile import SERVICE_PROFILE
from proxy.mesh.kinds.workloads.external_workload import EXTERNAL_WORKLOAD
from proxy.mesh.kinds.workloads.owner import JOB, REPLICA_SET
from proxy.mesh.kinds.workloads.pod import POD
from proxy.mesh.manifests.reading import Catalog

_IGNORED: Final = frozenset(
    {
        *(
            ("", name)
            for name in (
                "Binding", "ConfigMap", "Event", "LimitRange", "PersistentVolume", "PersistentVolumeClaim",
                "PodTemplate", "ReplicationController", "ResourceQuota", "Secret", "ServiceAccount",
            )
        ),
        *(
            (group, "*")
            for group in (
                "apps", "batch", "autoscaling", "policy", "rbac.authorization.k8s.io", "apiextensions.k8s.io",
                "storage.k8s.io", "scheduling.k8s.io", "coordination.k8s.io", "admissionregistration.k8s.io",
                "apiregistration.k8s.io", "node.k8s.io", "certificates.k8s.io", "events.k8s.io",
                "flowcontrol.apiserver.k8s.io", "cert-manager.io", "monitoring.coreos.com",
            )
        ),
        ("networking.k8s.io", "Ingress"),
        ("networking.k8s.io", "IngressClass"),
        ("gateway.networking.k8s.io", "Gateway"),
        ("gateway.networking.k8s.io", "GatewayClass"),
    }
)  # fmt: skip

_UNENFORCED: Final = frozenset(
    {
        ("policy.linkerd.io", "*"),
        ("sponson.io", "*"),
        ("networking.k8s.io", "NetworkPolicy"),
        ("security.istio.io", "*"),
        ("cilium.io", "CiliumNetworkPolicy"),
        ("cilium.io", "CiliumClusterwideNetworkPolicy"),
        ("crd.projectcalico.org", "*"),
        ("projectcalico.org", "*"),
    }
)

KINDS: Final = (
    SERVICE,
    ENDPOINT_SLICE,
    ENDPOINTS,
    EXTERNAL_WORKLOAD,
    POD,
    NAMESPACE,
    NODE,
    REPLICA_SET,
    JOB,
    SERVICE_PROFILE,
    SERVER,
    SERVER_AUTHORIZATION,
    AUTHORIZATION_POLICY,
    MESH_TLS_AUTHENTICATION,
    NETWORK_AUTHENTICATION,
    RATE_LIMIT,
    SERVER_POLICY,
    EGRESS_NETWORK,
    POLICY_HTTP_ROUTE,
    GATEWAY_HTTP_ROUTE,
    GRPC_ROUTE,
    TLS_ROUTE,
    TCP_ROUTE,
    REFERENCE_GRANT,
)

CATALOG: Final = Catalog(KINDS, CHECKS, judge_names, _IGNORED, _UNENFORCED)
