"""Discovery: looks up a destination once for all connections that go there (docs/linkerd/outbound.md, section 3).

Profile and policy are looked up at the same time, and both must have answered
before a connection goes on. A destination that is not in use is kept for the
idle timeout, which starts anew each time its last user leaves; a refusal is given
to those that waited and never kept. While the control plane is away nothing
expires; if there are too many, the one that has been unused longest goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol

from proxy.balance.endpoints import FAILED, KNOWN, Resolution
from proxy.core import limits
from proxy.core.address.addr import Addr
from proxy.core.failure.errors import report_fault
from proxy.core.loop.effort import spent
from proxy.core.loop.timers import Timer
from proxy.core.watch import Absent, Watch
from proxy.outbound.discovery.effective import (
    Effective,
    Known,
    Target,
    balance_policy,
    effective_policy,
    gateway_policy,
    ingress_policy,
)
from proxy.outbound.http.profile.budget import SharedBudget
from proxy.outbound.numbers import ParentNumbers, TargetNumbers
from proxy.outbound.runtime import Endpoints, Runtime
from proxy.policy.client import ClientPolicy
from proxy.policy.endpoint import EndpointMeta
from proxy.policy.profiles.profile import Profile

Kind = Literal["sidecar", "outside", "ingress", "gateway"]
SIDECAR: Final = "sidecar"
OUTSIDE: Final = "outside"
"""A name outside the mesh: balanced over the addresses that the system's resolver gives, without TLS."""
INGRESS: Final = "ingress"
GATEWAY: Final = "gateway"

_EFFECTIVE: Final[dict[str, Effective]] = {
    SIDECAR: effective_policy,
    OUTSIDE: effective_policy,
    INGRESS: ingress_policy,
    GATEWAY: gateway_policy,
}


class Router(Protocol):
    """Built on a destination by the code that routes to it; lives as long as the destination is cached."""

    def close(self) -> None: ...


class Destination:
    """One target, its watches, and the routers that were built on them."""

    __slots__ = (
        "target", "kind", "profile", "effective", "endpoints", "routers", "parent_numbers", "target_numbers", "retry_budget",
        "_discovery", "_policy", "_waiting", "_is_due", "_users", "_timer",
    )  # fmt: skip

    def __init__(
        self,
        discovery: Discovery,
        target: Target,
        kind: Kind,
        profile: Watch[Profile | Absent | None],
        policy: Watch[ClientPolicy | Absent | None],
        endpoints: Endpoints,
    ) -> None:
        self.target = target
        self.kind: Final = kind
        """The rule by which its effective policy is found (effective.py)."""
        self.profile = profile
        self.effective: Watch[ClientPolicy | Absent | None] = Watch(None)
        """None until both have answered; then the effective policy, or why there is none."""
        self.endpoints = endpoints
        """Looks up the endpoints of its policy's backends."""
        self.routers: dict[str, Router] = {}
        self.parent_numbers: ParentNumbers | None = None
        self.target_numbers: TargetNumbers | None = None
        """Set by the code that routes to it (protocol.py)."""
        self.retry_budget: SharedBudget | None = None
        """The retry budget of its profile, shared by all of its routers."""
        self._discovery = discovery
        self._policy = policy
        self._waiting: dict[Callable[[], None], None] = {}
        self._is_due = False
        """Whether the step queue will call `step`."""
        self._users = 0
        self._timer: Timer | None = None
        profile.subscribe(self._apply)
        policy.subscribe(self._apply)
        self._apply(None)

    # ---- users

    def hold(self) -> None:
        self._users += 1
        if self._timer is not None:
            self.stop_waiting()

    def stop_waiting(self) -> None:
        """Stop the idle timer, so that it does not expire by itself."""
        timer = self._timer
        if timer is not None:
            self._timer = None
            timer.cancel()
            self._discovery.unused.pop(self, None)

    def release(self) -> None:
        self._users -= 1
        if not self._users and self._timer is None:
            self._timer = self._discovery.idle(self)

    def when_known(self, callback: Callable[[], None]) -> None:
        """Call `callback` once `effective` has a value: now, if it has one."""
        if self.effective.value is not None:
            callback()
        else:
            self._waiting[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        self._waiting.pop(callback, None)

    def expired(self) -> None:
        if self._discovery.is_stale():
            # Its answer could not be had again now, and an app that comes back to it would wait in vain.
            self._timer = self._discovery.idle_timer(self)
            return
        self._timer = None
        self._discovery.unused.pop(self, None)
        self.close()

    def close(self) -> None:
        self._discovery.drop(self)
        self.profile.close()
        self._policy.close()
        for router in self.routers.values():
            router.close()
        self.routers.clear()

    # ---- the watches

    @property
    def is_outside(self) -> bool:
        """Whether it is outside the mesh and resolved by the system."""
        return self.kind == OUTSIDE

    @property
    def is_opaque(self) -> bool:
        """Whether the profile says that this destination's protocol is opaque."""
        profile = self.profile.value
        return isinstance(profile, Profile) and profile.is_opaque

    @property
    def logical(self) -> str:
        """The name of the destination in texts and labels."""
        return str(self.target)

    def _apply(self, _changed: object) -> None:
        value = _EFFECTIVE[self.kind](self.target, self.profile.value, self._policy.value)
        if value is None:
            return
        if isinstance(value, Absent):
            # Those that wait are told; whoever comes later asks anew, since a refusal may be over by then.
            self._discovery.drop(self)
        self.effective.set(value)
        if not self._is_due:
            self._tell()

    def step(self) -> None:
        """The step queue calls this."""
        self._is_due = False
        self._tell()

    def _tell(self) -> None:
        """Call one share of those that wait: each may be a request that is routed now."""
        waiting = self._waiting
        left, enough_s = limits.TURN_WAITERS, spent.s + limits.TURN_MATCH_S
        while waiting and left and spent.s <= enough_s:
            left -= 1
            callback = next(iter(waiting))
            del waiting[callback]
            try:
                callback()
            except Exception:
                report_fault()
        if waiting and not self._is_due:
            self._is_due = True
            self._discovery.steps.add(self)


class Discovery:
    """All destinations of one worker."""

    __slots__ = ("resolve", "is_stale", "unused", "steps", "_runtime", "_destinations", "_idle_ticks")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.steps: Final = runtime.reactor.steps
        self._destinations: dict[tuple[Target, str], Destination] = {}
        self.unused: Final[dict[Destination, None]] = {}
        """Destinations that are not in use, the longest unused first. Their number is bounded, so that an app that tries every
        address does not make us watch them all."""
        self.resolve: Final = runtime.lookups.resolve
        self.is_stale: Final = runtime.lookups.is_stale
        self._idle_ticks = runtime.reactor.wheel.ticks(runtime.config.outbound_discovery_idle_timeout_s)

    def __len__(self) -> int:
        return len(self._destinations)

    def get(self, target: Target, kind: Kind = SIDECAR) -> Destination:
        """The destination of a target; the caller must hold it at once."""
        found = self._destinations.get((target, kind))
        if found is None:
            found = self._outside(str(target)) if kind == OUTSIDE else self._of_mesh(target, kind)
            if not isinstance(found.effective.value, Absent):
                self._destinations[target, kind] = found
        return found

    def _of_mesh(self, target: Target, kind: Kind) -> Destination:
        lookups = self._runtime.lookups
        profile = lookups.profile(str(target)) if self._may_have_profile(target) else Watch(_NO_PROFILE)
        return Destination(self, target, kind, profile, lookups.policy(target), lookups.endpoints)

    def _outside(self, target: str) -> Destination:
        policy = _resolved(target, self.resolve(target))
        return Destination(self, target, OUTSIDE, Watch(_NO_PROFILE), policy, self.resolve)

    def idle(self, destination: Destination) -> Timer:
        """It is no longer in use: expire it after the idle timeout, or when too many are unused."""
        if len(self.unused) >= limits.UNUSED_DESTINATIONS:
            oldest = next(iter(self.unused))
            # Its timer would fire for a destination that is closed already.
            oldest.stop_waiting()
            oldest.close()
        self.unused[destination] = None
        return self.idle_timer(destination)

    def idle_timer(self, destination: Destination) -> Timer:
        return self._runtime.reactor.wheel.arm(destination.expired, self._idle_ticks)

    def drop(self, destination: Destination) -> None:
        """Forget it; the next `get` looks it up anew."""
        key = (destination.target, destination.kind)
        if self._destinations.get(key) is destination:
            del self._destinations[key]

    def close(self) -> None:
        for destination in list(self._destinations.values()):
            destination.close()

    def _may_have_profile(self, target: Target) -> bool:
        config = self._runtime.config
        if isinstance(target, Addr):
            return config.destination_profile_networks.contains(target.ip)
        return config.destination_profile_suffixes.contains(target.rpartition(":")[0])


_NO_PROFILE: Profile | Absent | None = Absent("outside of the profile networks and suffixes")


def _resolved(path: str, resolution: Watch[Resolution[EndpointMeta]]) -> Watch[Known]:
    """The policy of a name outside the mesh: none until it resolves, then a balancer over it."""
    policy: Watch[Known] = Watch(None, resolution.close)

    def apply(found: Resolution[EndpointMeta]) -> None:
        if found.state == KNOWN and found.endpoints:
            policy.set(balance_policy(path, "resolved"))
        elif found.state in (KNOWN, FAILED) and policy.value is None:
            policy.set(Absent(found.error or "the name has no address", True))

    resolution.subscribe(apply)
    apply(resolution.value)
    return policy
