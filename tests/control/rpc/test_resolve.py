"""Names of controllers: no DNS for loopback, SRV before A and AAAA, lookups repeated when the records expire."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

import pytest

from proxy.balance.endpoints import FAILED, KNOWN
from proxy.blocking.names import SystemResolver
from proxy.control.rpc import resolve
from proxy.control.rpc.dns import Client, DnsError
from proxy.control.rpc.resolve import Names, srv_addr
from proxy.core.address.addr import Addr
from proxy.core.address.control_addr import ControlAddr
from proxy.core.backoff import Backoff
from proxy.policy.endpoint import EndpointMeta
from tests.control.controller import run
from tests.kit.sockets import Ticking, until

TARGET = ControlAddr("linkerd-dst.linkerd.svc.cluster.local", 8086, "linkerd-dst")
SLOW = Backoff(1000.0, 1000.0, 0.0)
QUICK = Backoff(0.001, 0.001, 0.0)


class Table:
    """DNS answers from a table that tests change."""

    def __init__(self) -> None:
        self.srv_records: list[tuple[str, int]] = []
        self.ips: list[str] = []
        self.ttl_s = 0.0
        self.negative_ttl_s: float | None = None
        self.asked: list[str] = []

    async def srv(self, name: str) -> tuple[list[tuple[str, int]], float]:
        self.asked.append(f"SRV {name}")
        if not self.srv_records:
            raise DnsError("no SRV", self.negative_ttl_s)
        return self.srv_records, self.ttl_s

    async def addresses(self, name: str) -> tuple[list[str], float]:
        self.asked.append(f"A {name}")
        if not self.ips:
            raise DnsError("no A", self.negative_ttl_s)
        return self.ips, self.ttl_s


class Seen:
    def __init__(self) -> None:
        self.changes: list[list[Addr]] = []

    def __call__(self, addrs: Iterable[Addr]) -> None:
        self.changes.append(list(addrs))

    async def become(self, *addrs: Addr) -> None:
        await until(lambda: self.changes and self.changes[-1] == list(addrs), f"addresses are {addrs}")


@pytest.fixture
def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "MIN_TTL_S", 0.01)


@pytest.mark.parametrize(
    ("host", "addr"),
    [
        ("10.0.0.1", Addr("10.0.0.1", 8086)),
        ("fd00::1", Addr("fd00::1", 8086)),
        ("localhost.", Addr("127.0.0.1", 8086)),
    ],
)
def test_addresses_and_localhost_need_no_dns(host: str, addr: Addr) -> None:
    async def story(ticking: Ticking) -> None:
        table, seen = Table(), Seen()
        lookup = Names(ticking.reactor.loop, table).resolve(ControlAddr(host, 8086, None), SLOW, "policy", seen)
        assert seen.changes == [[addr]]
        lookup.close()
        assert not table.asked

    run(story)


@pytest.mark.acceptance("DNS-04")
def test_srv_targets() -> None:
    assert srv_addr("10-42-0-15.linkerd-dst.linkerd.svc.cluster.local.", 8086) == Addr("10.42.0.15", 8086)
    assert srv_addr("2001-db8-0-0-0-0-0-1.a.b.", 1) == Addr("2001:db8::1", 1)
    assert srv_addr("2001-db8--1.a.b.", 1) == Addr("2001:db8::1", 1)
    with pytest.raises(DnsError, match=r"invalid SRV record: target 'web-0\.a\.b\.'"):
        srv_addr("web-0.a.b.", 1)


def test_srv_comes_first_and_names_the_ports() -> None:
    async def story(ticking: Ticking) -> None:
        table, seen = Table(), Seen()
        table.srv_records = [("10-42-0-15.x.", 8090), ("10-42-0-16.x.", 8090)]
        table.ips = ["10.43.0.1"]
        names = Names(ticking.reactor.loop, table)
        lookup = names.resolve(TARGET, SLOW, "destination", seen)
        await seen.become(Addr("10.42.0.15", 8090), Addr("10.42.0.16", 8090))
        assert table.asked == [f"SRV {TARGET.host}"]
        assert names.counts == {("destination", "SRV", "ok"): 1}
        lookup.close()

    run(story)


@pytest.mark.parametrize("records", [[], [("web-0.x.", 8090)]])
def test_addresses_come_next_with_the_configured_port(records: list[tuple[str, int]]) -> None:
    async def story(ticking: Ticking) -> None:
        table, seen = Table(), Seen()
        table.srv_records = records
        table.ips = ["10.43.0.1", "fd00::1"]
        names = Names(ticking.reactor.loop, table)
        lookup = names.resolve(TARGET, SLOW, "policy", seen)
        await seen.become(Addr("10.43.0.1", 8086), Addr("fd00::1", 8086))
        assert names.counts == {("policy", "SRV", "not_found"): 1, ("policy", "A/AAAA", "ok"): 1}
        lookup.close()

    run(story)


@pytest.mark.usefixtures("no_floor")
def test_records_are_asked_for_again_when_they_run_out() -> None:
    async def story(ticking: Ticking) -> None:
        table, seen = Table(), Seen()
        table.ips = ["10.43.0.1"]
        lookup = Names(ticking.reactor.loop, table).resolve(TARGET, SLOW, "policy", seen)
        await seen.become(Addr("10.43.0.1", 8086))
        table.ips = ["10.43.0.2"]
        await seen.become(Addr("10.43.0.2", 8086))
        lookup.close()
        table.asked.clear()
        other = Names(ticking.reactor.loop, table).resolve(TARGET._replace(host="other"), SLOW, "policy", seen)
        await until(lambda: table.asked.count("A other") >= 3)
        assert f"A {TARGET.host}" not in table.asked, "a closed lookup asks no more"
        other.close()

    run(story)


@pytest.mark.usefixtures("no_floor")
@pytest.mark.parametrize(("negative_ttl_s", "backoff"), [(0.0, SLOW), (None, QUICK)])
def test_a_failed_lookup_takes_nothing_away_and_is_tried_again(negative_ttl_s: float | None, backoff: Backoff) -> None:
    async def story(ticking: Ticking) -> None:
        table, seen = Table(), Seen()
        table.negative_ttl_s = negative_ttl_s
        table.ips = ["10.43.0.1"]
        names = Names(ticking.reactor.loop, table)
        lookup = names.resolve(TARGET, backoff, "policy", seen)
        await seen.become(Addr("10.43.0.1", 8086))
        table.ips = []
        await until(lambda: names.counts["policy", "A/AAAA", "not_found"] >= 2)
        assert seen.changes[-1] == [Addr("10.43.0.1", 8086)]
        table.ips = ["10.43.0.3"]
        await seen.become(Addr("10.43.0.3", 8086))
        lookup.close()

    run(story)


@pytest.mark.usefixtures("no_floor")
def test_a_fault_of_ours_does_not_end_the_looking() -> None:
    async def story(ticking: Ticking) -> None:
        table, seen = Table(), Seen()
        table.ips = ["no address"]
        lookup = Names(ticking.reactor.loop, table).resolve(TARGET, QUICK, "policy", seen)
        await until(lambda: len(table.asked) >= 4)
        table.ips = ["10.43.0.1"]
        await seen.become(Addr("10.43.0.1", 8086))
        lookup.close()

    run(story)


def test_the_floor_and_the_configured_bounds() -> None:
    async def story(ticking: Ticking) -> None:
        loop = ticking.reactor.loop
        assert Names(loop)._clamp(0.0) == 5.0
        assert Names(loop)._clamp(600.0) == 600.0
        assert Names(loop, None, 30.0, 60.0)._clamp(1.0) == 30.0
        assert Names(loop, None, 30.0, 60.0)._clamp(600.0) == 60.0
        assert Names(loop, None, None, 1.0)._clamp(600.0) == 5.0

    run(story)


def test_names_outside_the_mesh_go_to_the_systems_resolver(caplog: pytest.LogCaptureFixture) -> None:
    async def story(ticking: Ticking) -> None:
        names = Names(ticking.reactor.loop)
        found = names.endpoints("localhost:81")
        await until(lambda: found.value.state == KNOWN)
        assert found.value.endpoints[Addr("127.0.0.1", 81)] == EndpointMeta()
        literal = names.endpoints("[::1]:82")
        await until(lambda: literal.value.endpoints == {Addr("::1", 82): EndpointMeta()})
        failed = names.endpoints("no-such-name.invalid:80")
        await until(lambda: failed.value.state == FAILED)
        assert "no-such-name.invalid" in failed.value.error
        (line,) = (record.getMessage() for record in caplog.records)
        assert line.startswith("no-such-name.invalid cannot be resolved: ")
        nonsense = [names.endpoints(path) for path in ("no-port", "a:b", f"{'x' * 70}.example:80")]
        await until(lambda: all(watch.value.state == FAILED for watch in nonsense))
        for watch in (found, literal, failed, *nonsense):
            watch.close()

    run(story)


def test_a_name_that_comes_later_is_found_soon_and_one_that_is_known_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that keep their connections keep the name's destination, and with it a failure until the name is looked up again."""
    monkeypatch.setattr(resolve, "SYSTEM_TTL_S", 0.02)
    monkeypatch.setattr(resolve, "_AGAIN", Backoff(0.01, 0.02, 0.0))
    answers: list[tuple[str, ...]] = [(), (), ("127.0.0.1",), (), (), ("127.0.0.2",)]
    states: list[str] = []

    def ask(name: str) -> tuple[str, ...]:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if not answer:
            raise OSError(f"no {name}")
        return answer

    async def story(ticking: Ticking) -> None:
        found = Names(ticking.reactor.loop, system=SystemResolver(ask)).endpoints("web.example:80")
        found.subscribe(lambda value: states.append(f"{value.state} {' '.join(one.ip for one in value.endpoints)}"))
        await until(lambda: Addr("127.0.0.2", 80) in found.value.endpoints)
        assert states == ["failed ", "known 127.0.0.1", "known 127.0.0.2"]
        found.close()

    run(story)


def test_a_failure_is_tried_again_sooner_than_what_is_known_and_that_within_seconds() -> None:
    assert resolve._AGAIN.wait_s(0) < 1.2 < resolve.SYSTEM_TTL_S <= 5.0 and resolve._AGAIN.wait_s(20) == 30.0


class NameServer(asyncio.DatagramProtocol):
    """Answers from a zone on loopback: (name, type) to (TTL, records); unlisted names do not exist."""

    def __init__(self, zone: dict[tuple[str, str], tuple[int, list[str]]], has_soa: bool = True) -> None:
        self.zone = zone
        self.has_soa = has_soa
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(self.answer(data), addr)

    def answer(self, data: bytes) -> bytes:
        import dns.flags
        import dns.message
        import dns.rcode
        import dns.rdatatype
        import dns.rrset

        query = dns.message.from_wire(data)
        response = dns.message.make_response(query)
        response.flags |= dns.flags.RA | dns.flags.AA
        question = query.question[0]
        name, kind = question.name.to_text(), dns.rdatatype.to_text(question.rdtype)
        ttl, records = self.zone.get((name, kind), (0, []))
        if records:
            response.answer.append(dns.rrset.from_text(name, ttl, "IN", kind, *records))
        else:
            if not any(known == name for known, _ in self.zone):
                response.set_rcode(dns.rcode.NXDOMAIN)
            soa = "ns.example. root.example. 1 2 3 4 7"
            if self.has_soa:
                response.authority.append(dns.rrset.from_text("example.", 60, "IN", "SOA", soa))
        return bytes(response.to_wire())


class TroubledServer(NameServer):
    """Fails for every SRV record, and sends answers about addresses over TCP only: by UDP they are cut."""

    def datagram_received(self, data: bytes, addr: Any) -> None:
        import dns.flags
        import dns.message
        import dns.rcode
        import dns.rdatatype

        query = dns.message.from_wire(data)
        response = dns.message.make_response(query)
        if query.question[0].rdtype == dns.rdatatype.SRV:
            response.set_rcode(dns.rcode.SERVFAIL)
        else:
            response.flags |= dns.flags.TC
        self.transport.sendto(response.to_wire(), addr)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(2), "big")
        said = self.answer(await reader.readexactly(size))
        writer.write(len(said).to_bytes(2, "big") + said)
        await reader.read()
        writer.close()


def test_the_real_client_asks_a_name_server() -> None:
    zone = {
        ("dst.example.", "SRV"): (17, ["0 50 8086 10-42-0-15.dst.example."]),
        ("web.example.", "A"): (40, ["10.0.0.1", "10.0.0.2"]),
        ("web.example.", "AAAA"): (30, ["fd00::1"]),
        ("four.example.", "A"): (40, ["10.0.0.4"]),
    }

    async def story(ticking: Ticking) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: NameServer(zone), local_addr=("127.0.0.1", 0))
        client = Client(SystemResolver(), [transport.get_extra_info("sockname")[:2]])
        assert await client.srv("dst.example.") == ([("10-42-0-15.dst.example.", 8086)], 17.0)
        ips, ttl_s = await client.addresses("web.example.")
        assert (sorted(ips), ttl_s) == (["10.0.0.1", "10.0.0.2", "fd00::1"], 30.0)
        assert await client.addresses("four.example.") == (["10.0.0.4"], 40.0)
        with pytest.raises(DnsError, match="no SRV records") as none:
            await client.srv("web.example.")
        assert none.value.ttl_s == 7.0
        with pytest.raises(DnsError, match="no such name") as unknown:
            await client.srv("nobody.example.")
        assert unknown.value.ttl_s == 7.0
        with pytest.raises(DnsError, match="no such name"):
            await client.addresses("nobody.example.")
        transport.close()

    run(story)


def test_a_failure_for_srv_and_an_answer_that_is_cut_still_lead_to_addresses() -> None:
    """Row 100 of the field log: SERVFAIL for SRV, and the addresses do not fit into a datagram."""
    ips = [f"10.0.0.{number}" for number in range(1, 100)]

    async def story(ticking: Ticking) -> None:
        loop = asyncio.get_running_loop()
        server = TroubledServer({("web.example.", "A"): (40, ips)})
        tcp = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        where = tcp.sockets[0].getsockname()[:2]
        transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=where)
        names, seen = Names(ticking.reactor.loop, Client(SystemResolver(), [where])), Seen()
        lookup = names.resolve(ControlAddr("web.example.", 8086, None), SLOW, "policy", seen)
        await until(lambda: seen.changes and {addr.ip for addr in seen.changes[-1]} == set(ips))
        lookup.close()
        transport.close()
        tcp.close()
        await tcp.wait_closed()

    run(story)


def test_a_denial_that_does_not_say_how_long_it_holds_is_asked_about_again_like_any_failure() -> None:
    """Docker's resolver, dnsmasq and systemd-resolved deny names without the zone's SOA."""

    async def story(ticking: Ticking) -> None:
        loop = asyncio.get_running_loop()
        server = NameServer({("web.example.", "A"): (40, ["10.0.0.1"])}, has_soa=False)
        transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", 0))
        client = Client(SystemResolver(lambda name: []), [transport.get_extra_info("sockname")[:2]])
        for name in ("nobody.example.", "web.example."):
            with pytest.raises(DnsError, match="no such name|no SRV records") as denied:  # noqa: RUF043
                await client.srv(name)
            assert denied.value.ttl_s is None
        transport.close()

    run(story)


def test_a_name_server_that_is_not_there_is_an_error_without_a_ttl() -> None:
    async def story(ticking: Ticking) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with pytest.raises(DnsError) as error:
            await Client(SystemResolver(), [("127.0.0.1", port)], lifetime_s=0.2).srv("web.example.")
        assert error.value.ttl_s is None

    run(story)


def test_the_hosts_file_is_the_last_resort() -> None:
    async def story(ticking: Ticking) -> None:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: NameServer({}), local_addr=("127.0.0.1", 0))
        ips, _ = await Client(SystemResolver(), [transport.get_extra_info("sockname")[:2]]).addresses("localhost")
        assert "127.0.0.1" in ips
        transport.close()

    run(story)
