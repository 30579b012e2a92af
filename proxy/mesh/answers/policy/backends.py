"""Backends of outbound policies as messages: a balancer over a service's endpoints, one address, or nothing with the reason why.

Shapes: the recording of the control plane in tests/data/control-plane; docs/linkerd/outbound.md, section 6.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from google.protobuf.duration_pb2 import Duration

from proxy.api import balancing_pb2, destination_pb2, meta_pb2
from proxy.api import outbound_pb2 as pb
from proxy.core.address.addr import Addr
from proxy.core.backoff import Backoff
from proxy.mesh.kinds.policy.egress_network import EGRESS_NETWORK, EgressNetwork
from proxy.mesh.kinds.policy.reference import POLICY
from proxy.mesh.kinds.routes import parent
from proxy.mesh.kinds.routes.parent import BackendRef
from proxy.mesh.kinds.services.service import SERVICE, Service
from proxy.mesh.model import CLUSTER_DOMAIN
from proxy.mesh.net import address_message, service_meta
from proxy.mesh.store.snapshot import View
from proxy.policy.client import ConsecutiveFailures, FailureAccrual, PenaltyLoad, Tuning

_QUEUE_CAPACITY: Final = 100
_FAILFAST_S: Final = 3.0
_DEFAULT_RTT_S: Final = 0.030
_DECAY_S: Final = 10.0
_NO_TUNING: Final = Tuning()


class Target(NamedTuple):
    """The original destination of traffic: a port of a service, or an address in an egress network."""

    parent: Service | EgressNetwork
    port: int
    addr: Addr | None
    """None if it was looked up by name."""

    @property
    def penalty(self) -> PenaltyLoad | None:
        return self.parent.penalty if isinstance(self.parent, Service) else None

    @property
    def meta(self) -> meta_pb2.Metadata:
        if isinstance(self.parent, Service):
            return service_meta(self.parent, self.port)
        return egress_meta(self.parent.namespace, self.parent.name, self.port)


def egress_meta(namespace: str, name: str, port: int) -> meta_pb2.Metadata:
    resource = meta_pb2.Resource(group=POLICY, kind="EgressNetwork", name=name, namespace=namespace, port=port)
    return meta_pb2.Metadata(resource=resource)


def default_backend(target: Target, is_opaque: bool) -> pb.Backend:
    """The backend of traffic for which no route names another. Penalties are for HTTP only."""
    if isinstance(target.parent, Service):
        return _balanced(target.parent, target.port, None if is_opaque else target.penalty)
    assert target.addr is not None, "egress networks are found by address only"
    return forward_backend(target.addr, target.meta, 1)


def forward_backend(addr: Addr, meta: meta_pb2.Metadata, weight: int) -> pb.Backend:
    forward = destination_pb2.WeightedAddr(addr=address_message(addr), weight=weight)
    return pb.Backend(metadata=meta, forward=forward, queue=_queue())


class Backend(NamedTuple):
    """`fault`: why it cannot be reached; every request that it gets fails with this text."""

    message: pb.Backend
    fault: str = ""


def backend_of(view: View, ref: BackendRef, target: Target) -> Backend:
    """What a route's reference leads to."""
    if ref.fault:
        return _invalid(meta_pb2.Metadata(default="invalid"), ref.fault)
    if ref.kind == parent.SERVICE:
        service = view.one(SERVICE, (ref.namespace, ref.name))
        if service is None:
            absent = Service(ref.namespace, ref.name)
            return _invalid(service_meta(absent, ref.port), f"Service not found {ref.name}")
        return Backend(_balanced(service, ref.port, target.penalty))
    return _egress_backend(view, ref, target)


def _egress_backend(view: View, ref: BackendRef, target: Target) -> Backend:
    port = ref.port or (target.addr.port if target.addr is not None else 0)
    meta = egress_meta(ref.namespace, ref.name, port)
    if view.one(EGRESS_NETWORK, (ref.namespace, ref.name)) is None:
        return _invalid(meta, f"EgressNetwork not found {ref.name}")
    if isinstance(target.parent, Service):
        return _invalid(meta, "EgressNetwork backends attach to EgressNetwork parents only")
    if target.addr is None:
        return _invalid(meta, "EgressNetwork can be resolved from an ip:port combo only")
    if target.parent.key != (ref.namespace, ref.name):
        return _invalid(meta, "Route with EgressNetwork backend needs to have the same EgressNetwork as a parent")
    return Backend(forward_backend(target.addr, meta, ref.weight))


def _invalid(meta: meta_pb2.Metadata, fault: str) -> Backend:
    return Backend(pb.Backend(metadata=meta, queue=_queue()), fault)


def _balanced(service: Service, port: int, penalty: PenaltyLoad | None) -> pb.Backend:
    path = f"{service.name}.{service.namespace}.svc.{CLUSTER_DOMAIN}:{port}"
    destination = pb.Backend.EndpointDiscovery.DestinationGet(path=path)
    balance = pb.Backend.BalanceP2c(discovery=pb.Backend.EndpointDiscovery(dst=destination))
    if penalty is None:
        balance.peak_ewma.default_rtt.CopyFrom(duration(_DEFAULT_RTT_S))
        balance.peak_ewma.decay.CopyFrom(duration(_DECAY_S))
    else:
        load = balance.penalty_peak_ewma
        load.default_rtt.CopyFrom(duration(penalty.default_rtt_s))
        load.decay.CopyFrom(duration(penalty.decay_s))
        load.penalty.CopyFrom(duration(penalty.penalty_s))
        load.penalty_decay.CopyFrom(duration(_DECAY_S))
        load.max_retry_after.CopyFrom(duration(penalty.max_retry_after_s))
    _tune(balance, service.tuning)
    return pb.Backend(metadata=service_meta(service, port), balancer=balance, queue=_queue())


def _tune(balance: pb.Backend.BalanceP2c, tuning: Tuning) -> None:
    """Set our own settings, in a field that Linkerd's proxies skip."""
    if tuning != _NO_TUNING:
        overlay = balancing_pb2.Overlay(
            tuning=balancing_pb2.Tuning(
                least_request=tuning.least_request,
                slow_start_s=tuning.slow_start_s,
                probe_share=tuning.probe_share,
            )
        )
        balance.MergeFromString(overlay.SerializeToString())


def _queue() -> pb.Queue:
    return pb.Queue(capacity=_QUEUE_CAPACITY, failfast_timeout=duration(_FAILFAST_S))


def accrual_message(accrual: FailureAccrual | None, honors_retry_after: bool) -> pb.FailureAccrual | None:
    if accrual is None:
        return None
    if isinstance(accrual, ConsecutiveFailures):
        backoff = backoff_message(accrual.backoff)
        consecutive = pb.FailureAccrual.ConsecutiveFailures(max_failures=accrual.max_failures, backoff=backoff)
        return pb.FailureAccrual(consecutive_failures=consecutive)
    backoff = backoff_message(accrual.backoff)
    backoff.respect_retry_after_hint = honors_retry_after
    return pb.FailureAccrual(
        unified=pb.FailureAccrual.Unified(
            success_rate_threshold=accrual.success_rate_threshold,
            decay=duration(accrual.window_s),
            min_requests=accrual.min_requests,
            max_consecutive_failures=accrual.max_consecutive_failures,
            backoff=backoff,
        )
    )


def backoff_message(backoff: Backoff) -> pb.ExponentialBackoff:
    return pb.ExponentialBackoff(
        min_backoff=duration(backoff.min_s), max_backoff=duration(backoff.max_s), jitter_ratio=backoff.jitter
    )


def duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))
