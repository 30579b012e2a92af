"""Names: resolves the addresses of a controller by DNS, and again whenever the records expire.

A lookup that fails changes nothing: the last addresses stay until a
newer answer replaces them. SRV comes first, since a headless service's
records name each pod and its port; any failure of it falls back to A and
AAAA, and, where DNS knows nothing at all, to the system's resolver (hosts
file). Source: docs/linkerd/balancing.md, section 9; docs/linkerd/configuration.md, section 4.6.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Protocol

from proxy.balance.endpoints import FAILED, KNOWN, Resolution
from proxy.blocking.names import SystemResolver
from proxy.control.rpc import dns
from proxy.control.rpc.dns import DnsError
from proxy.core.address.addr import Addr, addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.backoff import Backoff
from proxy.core.failure.errors import report_fault
from proxy.core.log import logger
from proxy.core.watch import Watch
from proxy.policy.endpoint import EndpointMeta

_log: Final = logger(__name__)

MIN_TTL_S: Final = 5.0
"""No controller's name is looked up more often than this, unless it failed."""
SYSTEM_TTL_S: Final = 5.0
"""The lifetime of answers of the system's resolver, which gives no TTL (Envoy's for names: 5 s; a service that moves to another
address by DNS counts on about as much)."""
_AGAIN: Final = Backoff(1.0, 30.0, 0.1)
"""When it is asked again after a failure: a name that is not there yet is often there a moment later, and whoever asks for it
gets the failure until then."""

SRV: Final = "SRV"
ADDRESS: Final = "A/AAAA"

OnAddresses = Callable[[Iterable[Addr]], None]


class Answer(NamedTuple):
    addrs: tuple[Addr, ...]
    ttl_s: float


class Dns(Protocol):
    """Two lookups. proxy.control.rpc.dns answers them from the network, tests from a table."""

    async def srv(self, name: str) -> tuple[list[tuple[str, int]], float]:
        """Targets with their ports, and the TTL; DnsError if there are none."""

    async def addresses(self, name: str) -> tuple[list[str], float]:
        """IP addresses and the TTL; DnsError if there are none."""


class Lookup:
    """One name that is kept resolved; `close` ends it."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[None] | None) -> None:
        self._task = task

    def close(self) -> None:
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()


class Names:
    """`dns_min_ttl_s` and `dns_max_ttl_s` clamp the TTLs of records; MIN_TTL_S applies as well."""

    def __init__(
        self,
        loop: Any,
        dns_client: Dns | None = None,
        min_ttl_s: float | None = None,
        max_ttl_s: float | None = None,
        system: SystemResolver | None = None,
    ) -> None:
        self.counts: Final[Counter[tuple[str, str, str]]] = Counter()
        """Resolutions by client, record type (SRV, A/AAAA) and result (ok, not_found); docs/linkerd/metrics.md,
        section 9.
        """
        self._loop = loop
        self._system: Final = system or SystemResolver()
        self._dns: Dns = dns_client or dns.Client(self._system)
        self._min_ttl_s = max(min_ttl_s or 0.0, MIN_TTL_S)
        self._max_ttl_s = max_ttl_s

    def resolve(self, target: ControlAddr, backoff: Backoff, client: str, on_addresses: OnAddresses) -> Lookup:
        """Call `on_addresses` now if `target` needs no DNS, else when its addresses are known, and at each change."""
        if target.is_ip:
            on_addresses((addr(target.host, target.port),))
            return Lookup(None)
        if target.is_loopback:
            on_addresses((Addr("127.0.0.1", target.port),))
            return Lookup(None)
        return Lookup(self._loop.create_task(self._keep(target, backoff, client, on_addresses)))

    def endpoints(self, path: str) -> Watch[Resolution[EndpointMeta]]:
        """The addresses of `host:port` by the system's resolver, for names outside the mesh: KNOWN without metadata,
        or FAILED. Addresses that are known stay until others are found, so that a name server that is away ends no traffic.
        """
        watch: Watch[Resolution[EndpointMeta]] = Watch(Resolution(), lambda: task.cancel())
        task = self._loop.create_task(self._keep_system(path, watch))
        return watch

    async def _keep(self, target: ControlAddr, backoff: Backoff, client: str, on_addresses: OnAddresses) -> None:
        failures = 0
        while True:
            wait_s = backoff.wait_s(failures)
            failures += 1
            try:
                answer = await self._ask(target, client)
                on_addresses(answer.addrs)
                failures = 0
                wait_s = self._clamp(answer.ttl_s)
            except DnsError as error:
                if error.ttl_s is not None:
                    wait_s = self._clamp(error.ttl_s)
                _log.warning("%s controller: %s; asking again in %.3gs", client, error, wait_s)
            except Exception:
                report_fault()  # the controller must be found again, whatever it was
            await asyncio.sleep(wait_s)

    async def _ask(self, target: ControlAddr, client: str) -> Answer:
        try:
            targets, ttl_s = await self._dns.srv(target.host)
            answer = Answer(tuple(srv_addr(name, port) for name, port in targets), ttl_s)
        except DnsError as error:
            self.counts[client, SRV, "not_found"] += 1
            srv_error = error
        else:
            self.counts[client, SRV, "ok"] += 1
            return answer
        try:
            ips, ttl_s = await self._dns.addresses(target.host)
        except DnsError as error:
            self.counts[client, ADDRESS, "not_found"] += 1
            text = f"failed SRV and A record lookups: {srv_error}; {error}"
            raise DnsError(text, error.ttl_s) from None
        self.counts[client, ADDRESS, "ok"] += 1
        return Answer(tuple(addr(ip, target.port) for ip in ips), ttl_s)

    def _clamp(self, ttl_s: float) -> float:
        if self._max_ttl_s is not None:
            ttl_s = min(ttl_s, self._max_ttl_s)
        return max(ttl_s, self._min_ttl_s)

    async def _keep_system(self, path: str, watch: Watch[Resolution[EndpointMeta]]) -> None:
        host, _, port = path.rpartition(":")
        failures, failed = 0, ""
        while not watch.is_closed:
            wait_s = SYSTEM_TTL_S
            try:
                ips = await dns.system_addresses(self._system, host.strip("[]"))
                watch.set(Resolution(KNOWN, {addr(ip, int(port)): EndpointMeta() for ip in ips}))
                failures, failed = 0, ""
            except (DnsError, ValueError) as error:
                wait_s = _AGAIN.wait_s(failures)
                failures += 1
                if failed != str(error):
                    failed = str(error)
                    _log.warning("%s cannot be resolved: %s; asking again within %gs", host, error, _AGAIN.max_s)
                if watch.value.state != KNOWN:
                    watch.set(Resolution(FAILED, {}, failed))
            except Exception:
                report_fault()
            await asyncio.sleep(wait_s)


def srv_addr(target: str, port: int) -> Addr:
    """The address that a record's target spells in its first label: `10-42-0-15.…`, `2001-db8--1.…`; DnsError if none."""
    label = target.split(".", 1)[0]
    for separator in ".:":
        try:
            return addr(label.replace("-", separator), port)
        except ValueError:
            continue
    raise DnsError(f"invalid SRV record: target {target!r} names no IP address")
