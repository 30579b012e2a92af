"""Where an accepted connection goes: to its original destination, or nowhere; and which errors are counted on the way."""

from __future__ import annotations

import errno
import socket

import pytest

from proxy.core.address.addr import Addr
from proxy.inbound.connection.accept import destination
from proxy.policy.defaults import default_policy
from proxy.transport.detection.header import TransportHeader
from tests.inbound.kit import OK, Workload
from tests.kit.sockets import Ticking, run, tcp_pair, until

GET = b"GET / HTTP/1.1\r\nhost: app\r\n\r\n"
DETECT_TIMEOUT_S = 10.1


def errors(workload: Workload, error: str, target: Addr | None = None) -> float:
    where = f'target_addr="{target or Addr("127.0.0.1", workload.app.port)}"'
    return workload.metric("inbound_tcp_errors_total", f'error="{error}"', where)


def unredirected(number: int) -> object:
    class Socket:
        def getsockopt(self, *_: object) -> bytes:
            raise OSError(number, "no")

        def getsockname(self) -> tuple[str, int]:
            return "::ffff:10.0.0.7", 4143

    return Socket()


@pytest.mark.parametrize("number", [errno.ENOPROTOOPT, errno.ENOENT])
def test_without_redirection_the_destination_is_the_socket_itself(number: int) -> None:
    sock: socket.socket = unredirected(number)  # type: ignore[assignment]
    assert destination(sock, Addr("10.0.0.1", 5)) == Addr("10.0.0.7", 4143)


def test_any_other_error_is_one() -> None:
    sock: socket.socket = unredirected(errno.EBADF)  # type: ignore[assignment]
    with pytest.raises(OSError, match="no"):
        destination(sock, Addr("10.0.0.1", 5))


def test_a_plain_loopback_socket_goes_to_itself() -> None:
    client, accepted = tcp_pair()
    with client, accepted:
        assert destination(accepted, Addr(*client.getsockname())) == Addr(*accepted.getsockname())


def test_a_connection_without_destination_is_dropped_and_the_listener_goes_on() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.original = OSError(errno.EBADF, "Bad file descriptor")
            dropped = await workload.connect()
            assert await dropped.rest() == b""
            workload.original = None
            client = await workload.connect()
            assert await client.ask(GET) == OK
            dropped.close()
            client.close()

    run(story)


@pytest.mark.acceptance("ACC-01")
def test_a_permitted_port_goes_to_the_app_and_not_to_the_direct_stack() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, default_policy("all-unauthenticated", (), 10.0)) as workload:
            client = await workload.connect()
            assert await client.ask(GET) == OK
            assert not workload.lines("inbound_tcp_transport_header_connections_total")
            client.close()

    run(story)


@pytest.mark.acceptance("ACC-02")
def test_a_denied_port_is_denied_by_its_policy() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, default_policy("deny", (), 10.0)) as workload:
            client = await workload.connect()
            client.write(GET)
            assert await client.rest() in (b"", b"<RST>")
            assert workload.metric("inbound_tcp_authz_deny_total", 'srv_name="deny"') == 1
            assert not workload.app.saw
            client.close()

    run(story)


@pytest.mark.acceptance("ACC-03")
def test_the_proxys_own_port_is_the_direct_stack() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            client = await workload.connect_direct(TransportHeader(workload.app.port, "", "http/1"))
            assert await client.ask(GET) == OK
            assert not workload.lines("inbound_tcp_detect_http_results_total")
            client.close()

    run(story)


@pytest.mark.acceptance("TCPERR-04")
@pytest.mark.parametrize("data", [b"", b"GET"])
def test_an_address_that_is_not_ours(data: bytes) -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking, INBOUND_IPS="10.0.0.1") as workload:
            client = await workload.connect()
            client.write(data)
            assert await client.rest() in (b"", b"<RST>")
            assert errors(workload, "unexpected") == 1
            assert errors(workload, "tls detection timeout") == 0
            client.close()

    run(story)


@pytest.mark.acceptance("TCPERR-01", "TCPERR-02")
def test_silence_is_counted_and_tls_is_not() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:

            async def request_over_tls() -> None:
                client = await workload.connect_tls()
                assert await client.ask(GET) == OK
                client.close()

            await request_over_tls()
            assert errors(workload, "tls detection timeout") == 0
            silent = await workload.connect()
            await until(lambda: len(workload.drain) >= 1)
            ticking.pass_time(DETECT_TIMEOUT_S)
            assert await silent.rest() == b""
            assert errors(workload, "tls detection timeout") == 1
            await request_over_tls()
            assert errors(workload, "tls detection timeout") == 1
            silent.close()

    run(story)


@pytest.mark.acceptance("TCPERR-03")
def test_direct_silence_and_direct_plain_text() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            workload.original = workload.listener.addr

            def counted() -> tuple[float, float]:
                own = workload.listener.addr
                return errors(workload, "tls detection timeout", own), errors(workload, "unexpected", own)

            async def be_silent() -> None:
                silent = await workload.connect()
                await until(lambda: len(workload.drain) == 1)
                ticking.pass_time(DETECT_TIMEOUT_S)
                assert await silent.rest() == b""
                silent.close()

            await be_silent()
            assert counted() == (1, 0)
            plain = await workload.connect()
            plain.write(b"custom tcp hello\n")
            assert await plain.rest() in (b"", b"<RST>")
            plain.close()
            assert counted() == (1, 1)
            await until(lambda: not len(workload.drain))
            await be_silent()
            assert counted() == (2, 1)

    run(story)


@pytest.mark.acceptance("TCPERR-05")
def test_direct_tls_is_no_timeout() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:

            async def request() -> None:
                client = await workload.connect_direct(TransportHeader(workload.app.port, "", "http/1"))
                assert await client.ask(GET) == OK
                client.close()
                await until(lambda: not len(workload.drain))

            await request()
            own = workload.listener.addr
            assert errors(workload, "tls detection timeout", own) == 0
            silent = await workload.connect()
            await until(lambda: len(workload.drain) == 1)
            ticking.pass_time(DETECT_TIMEOUT_S)
            assert await silent.rest() == b""
            silent.close()
            assert errors(workload, "tls detection timeout", own) == 1
            await request()
            assert errors(workload, "tls detection timeout", own) == 1

    run(story)


@pytest.mark.acceptance("IDN-01")
def test_an_idle_connection_holds_up_nobody() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            idle = await workload.connect()
            await until(lambda: len(workload.drain) == 1)
            client = await workload.connect()
            assert await client.ask(GET) == OK
            idle.close()
            client.close()

    run(story)


def test_shutting_down_ends_what_nobody_has_understood_yet() -> None:
    async def story(ticking: Ticking) -> None:
        async with Workload(ticking) as workload:
            silent = await workload.connect()
            half = await workload.connect_tls()
            busy = await workload.connect()
            await until(lambda: len(workload.drain) == 3)
            assert await busy.ask(GET) == OK
            drained: list[bool] = []
            workload.drain.begin(lambda: drained.append(True))
            assert await silent.rest() == b""
            assert await half.rest() == b""
            assert await busy.rest() == b""
            for client in (silent, half, busy):
                client.close()
            await until(lambda: drained == [True])

    run(story)
