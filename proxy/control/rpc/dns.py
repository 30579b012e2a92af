"""Questions to the name servers of resolv.conf, and to the system's resolver behind them.

Every failure is a DnsError, with the TTL of the negative answer if there was one.
dnspython is imported on the first question: most proxies' controllers are addresses in tests and names in clusters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from proxy.blocking.names import SystemResolver

SYSTEM_TTL_S: Final = 30.0
"""How long an address from the system's resolver may be used; the resolver gives no TTL."""


class DnsError(Exception):
    """A name has no such records, or no name server answered; the text says which."""

    def __init__(self, text: str, ttl_s: float | None = None) -> None:
        super().__init__(text)
        self.ttl_s: Final = ttl_s
        """How long the answer "there is none" holds; None if there was no answer."""


class Client:
    """Asks name servers. `servers`, as (ip, port), replace those of resolv.conf."""

    def __init__(
        self, system: SystemResolver, servers: Sequence[tuple[str, int]] = (), lifetime_s: float = 5.0
    ) -> None:
        self._system = system
        self._servers = servers
        self._lifetime_s = lifetime_s
        self._resolver: Any = None

    async def srv(self, name: str) -> tuple[list[tuple[str, int]], float]:
        answer = await self._ask(name, "SRV")
        return [(record.target.to_text(), record.port) for record in answer], float(answer.rrset.ttl)

    async def addresses(self, name: str) -> tuple[list[str], float]:
        """A and AAAA records, asked at the same time; for a name that DNS does not know, the hosts file."""
        answers = await asyncio.gather(self._ask(name, "A"), self._ask(name, "AAAA"), return_exceptions=True)
        ips: list[str] = []
        ttls: list[float] = []
        for answer in answers:
            if not isinstance(answer, BaseException):
                ips.extend(record.address for record in answer)
                ttls.append(float(answer.rrset.ttl))
            elif not isinstance(answer, DnsError):
                raise answer
        if ips:
            return ips, min(ttls)
        try:
            return list(await system_addresses(self._system, name)), SYSTEM_TTL_S
        except DnsError:
            raise answers[0] if isinstance(answers[0], DnsError) else DnsError(f"{name}: no addresses") from None

    async def _ask(self, name: str, kind: str) -> Any:
        import dns.exception
        import dns.resolver

        try:
            return await self._configured().resolve(name, kind, search=True, lifetime=self._lifetime_s)
        except dns.resolver.NXDOMAIN as error:
            responses = error.kwargs["responses"].values()
            raise DnsError(f"{name}: no such name", _negative_ttl_s(responses)) from None
        except dns.resolver.NoAnswer as error:
            raise DnsError(f"{name}: no {kind} records", _negative_ttl_s([error.kwargs["response"]])) from None
        except (dns.exception.DNSException, OSError) as error:
            raise DnsError(f"{name}: {error}") from None

    def _configured(self) -> Any:
        """The configured resolver, made on first use: NoResolverConfiguration (a DNSException) if there is no
        resolv.conf.
        """
        if self._resolver is None:
            import dns.asyncresolver

            resolver = dns.asyncresolver.Resolver(configure=not self._servers)
            if self._servers:
                resolver.nameservers = [ip for ip, _ in self._servers]
                resolver.port = self._servers[0][1]
            self._resolver = resolver
        return self._resolver


def _negative_ttl_s(responses: Iterable[Any]) -> float | None:
    """How long the answer "there is none" holds, from the zones' SOA (RFC 2308, section 5). None if no response has one, as
    from many resolvers of containers and small routers: dnspython would assume minutes, in some versions a century.
    """
    import dns.rdatatype

    found = [
        min(rrset.ttl, *(record.minimum for record in rrset))
        for response in responses
        for rrset in response.authority
        if rrset.rdtype == dns.rdatatype.SOA
    ]
    return float(min(found)) if found else None


async def system_addresses(system: SystemResolver, name: str) -> tuple[str, ...]:
    """The addresses that the system's resolver gives; DnsError if it finds none."""
    try:
        return await system.addresses(name)
    except OSError as error:
        raise DnsError(f"{name}: {error.strerror or error}") from None
    except UnicodeError:
        raise DnsError(f"{name}: no name that DNS knows") from None
