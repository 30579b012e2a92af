"""A control plane in the test's process and a `sponson run` beside it, for tests of whole processes."""

from __future__ import annotations

import datetime
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from proxy.api import identity_pb2, services
from proxy.core.address.addr import Addr, parse_addr
from proxy.transport.detection.header import TransportHeader, encode
from tests.control.controller import Controller
from tests.kit.certificates import credentials, the_ca
from tests.kit.environment import NAME, environment

DEADLINE_S = 60.0
ROOT = Path(__file__).parents[2]


class ControlPlane:
    """Certifies every client while `may_certify` is set; it knows no destination and has no policy."""

    def __init__(self) -> None:
        self.controller = Controller()
        self.may_certify = threading.Event()
        self.lifetime_s = 3600.0
        self.certified = 0
        self.controller.on(services.CERTIFY, self._certify)
        self.policies = self.controller.feed(services.INBOUND_WATCH_PORT)

    def start(self) -> None:
        self.controller.start()

    def stop(self) -> None:
        self.may_certify.set()
        self.controller.stop()

    def _certify(self, request: identity_pb2.CertifyRequest, context: grpc.ServicerContext) -> Any:
        while not self.may_certify.wait(0.05):
            if not context.is_active():
                context.abort(grpc.StatusCode.CANCELLED, "gone")
        leaf = certificate_for(x509.load_der_x509_csr(request.certificate_signing_request), request.identity)
        response = identity_pb2.CertifyResponse(leaf_certificate=leaf)
        response.valid_until.FromNanoseconds(int((time.time() + self.lifetime_s) * 1e9))
        self.certified += 1
        return response


def certificate_for(csr: x509.CertificateSigningRequest, name: str) -> bytes:
    """A DER certificate of `the_ca()` that is valid for a day."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(the_ca().certificate.subject)
        .public_key(csr.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    return builder.sign(the_ca().key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


class Sidecar:
    """A `sponson run`: its ports, which it logs, and its output. `before` is a command that becomes the one after it."""

    def __init__(self, env: dict[str, str], before: Sequence[str] = ()) -> None:
        self.process = subprocess.Popen(
            [*before, sys.executable, "-m", "proxy", "run"],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        self.output: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output.append(line.rstrip())

    @property
    def text(self) -> str:
        return "\n".join(self.output)

    def address(self, name: str) -> Addr:
        """The address of the `Admin`, `Inbound` or `Outbound` interface."""
        wait_for(lambda: f"{name} interface on" in self.text or self.process.poll() is not None, self)
        found = re.search(rf"{name} interface on (\S+)", self.text)
        assert found is not None, self.text
        return parse_addr(found[1])

    def admin(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Status and body of an answer from the admin port; (0, "") if there is none."""
        try:
            with self.connect("Admin") as sock:
                sock.sendall(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
                answer = read_all(sock)
        except OSError:
            return 0, ""
        head, _, body = answer.partition(b"\r\n\r\n")
        return (int(head.split(b" ", 2)[1]), body.decode()) if head else (0, "")

    def metric(self, name: str, *needles: str) -> float:
        page = self.admin("/metrics")[1]
        return sum(
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith((f"{name} ", f"{name}{{")) and all(one in line for one in needles)
        )

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def connect(self, name: str) -> socket.socket:
        sock = socket.create_connection(self.address(name), timeout=DEADLINE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def connect_direct(self, port: int, protocol: Any = "http/1", peer: str = "web.ns.cluster.local") -> ssl.SSLSocket:
        """Mesh TLS to the inbound port, with a transport header for this port of the workload."""
        context = credentials(peer).client_context(True)
        sock = context.wrap_socket(self.connect("Inbound"), server_hostname=NAME, suppress_ragged_eofs=True)
        sock.sendall(encode(TransportHeader(port, "", protocol)))
        return sock

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def exit_status(self) -> int:
        status = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        return status


@contextmanager
def sidecar(
    control: ControlPlane, directory: Path, is_ready: bool = True, before: Sequence[str] = (), **env: str | None
) -> Iterator[Sidecar]:
    """A sidecar that uses this control plane, on free ports. Waits until it is ready. `env` is as `environment()`
    takes it, and may have SPONSON_ variables.
    """
    token = directory / "token"
    token.write_text("a token")
    target = f"127.0.0.1:{control.controller.port}"
    given: dict[str, str | None] = {
        "DESTINATION_SVC_ADDR": target,
        "POLICY_SVC_ADDR": target,
        "IDENTITY_SVC_ADDR": target,
        "IDENTITY_DIR": str(directory / "identity"),
        "IDENTITY_TOKEN_FILE": str(token),
        "IDENTITY_TRUST_ANCHORS": the_ca().pem,
        "INBOUND_LISTEN_ADDR": "127.0.0.1:0",
        "OUTBOUND_LISTEN_ADDR": "127.0.0.1:0",
        "ADMIN_LISTEN_ADDR": "127.0.0.1:0",
        "LOG": "info",
    }
    ours = {name: value for name, value in env.items() if name.startswith("SPONSON_") and value is not None}
    theirs = {name: value for name, value in env.items() if name not in ours}
    made = Sidecar(environment(**(given | theirs)) | ours, before)
    try:
        if is_ready:
            control.may_certify.set()
            wait_for(lambda: made.admin("/ready")[0] == 200, made)
        yield made
    finally:
        made.process.kill()
        made.process.wait(DEADLINE_S)
        made._reader.join(DEADLINE_S)
        if made.process.stdout is not None:
            made.process.stdout.close()


def wait_for(condition: Callable[[], Any], about: Sidecar | None = None) -> None:
    """Wait until the condition holds, for DEADLINE_S at most."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"it did not happen\n{about.text if about is not None else ''}")
        time.sleep(0.01)


def read_all(sock: socket.socket) -> bytes:
    """All bytes until the other side ends."""
    chunks = []
    while data := sock.recv(65536):
        chunks.append(data)
    return b"".join(chunks)


def read_until(sock: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        more = sock.recv(65536)
        if not more:
            raise ConnectionAbortedError(f"ended after {data[:200]!r}")
        data += more
    return data


class App:
    """What a workload runs: a thread per connection, which goes on when the test lets it."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._serve = serve
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_one, args=(sock,), daemon=True).start()

    def _serve_one(self, sock: socket.socket) -> None:
        with sock:
            try:
                self._serve(sock)
            except OSError:
                pass

    def __enter__(self) -> App:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE_S)
