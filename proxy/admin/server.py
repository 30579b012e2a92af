"""AdminStage: what the admin port answers (docs/linkerd/admin-tap-tracing-shutdown.md, section 2; recorded in tests/data/admin.json).

Path, method and client are checked, in the order in which Linkerd checks them for each endpoint. The client is the connection's peer; Host and
Origin only show whether a web page made a local browser send the request (origin.py). Policy, TLS and metrics of the port are added outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from proxy.admin.answer import (
    FOREIGN_PAGE,
    NOT_FOUND,
    ONLY_LOCALHOST,
    ONLY_POST,
    ONLY_READ,
    Answer,
    text,
)
from proxy.admin.body import Bodies
from proxy.admin.env import env_json, shown_of
from proxy.admin.origin import is_foreign
from proxy.admin.ready import Readiness
from proxy.admin.scrape import Scrapes
from proxy.core import limits
from proxy.core.log import logger
from proxy.core.log.filter import FilterError
from proxy.http.exchange import Exchange
from proxy.http.head import RequestHead
from proxy.http.headers import field

_log: Final = logger(__name__)
_PAGES: Final = (b"/live", b"/ready", b"/metrics")
_READING: Final = (b"GET", b"HEAD")
_ALLOW: Final = (field(b"allow", b"GET"), field(b"allow", b"PUT"))


class LogLevel(Protocol):
    """core.log.Logging is one."""

    @property
    def is_off(self) -> bool: ...

    @property
    def filter(self) -> object:
        """The filter; its text is the canonical form."""

    def set(self, text: str) -> None:
        """FilterError if any of it is wrong."""


class Admin:
    """What all endpoints share; one per process.

    `scrapes` answers for the metrics page; `env` is the process's environment; `shut_down` begins the shutdown and says whether
    it could, None if the endpoint is not enabled.
    """

    def __init__(
        self,
        readiness: Readiness,
        scrapes: Scrapes,
        log: LogLevel,
        env: Mapping[str, str],
        shut_down: Callable[[], bool] | None,
    ) -> None:
        self.readiness: Final = readiness
        self.scrapes: Final = scrapes
        self.log: Final = log
        self.env: Final = shown_of(env)
        self.shut_down: Final = shut_down
        self.bodies: Final = Bodies()


class AdminStage:
    """Made for each connection, because some endpoints are for local clients only."""

    __slots__ = ("_admin", "_is_local")

    def __init__(self, admin: Admin, is_local: bool) -> None:
        """`is_local`: the client is on loopback and speaks for itself (core/address/here.py)."""
        self._admin: Final = admin
        self._is_local: Final = is_local

    def dispatch(self, exchange: Exchange) -> None:
        path, mark, query = exchange.request.path.partition(b"?")
        if path == b"/proxy-log-level":
            self._log_level(exchange)
        elif path == b"/env.json":
            env_json(exchange.request, query if mark else None, self._admin.env).send(exchange)
        elif path == b"/metrics" and exchange.request.method in _READING:
            self._admin.scrapes.answer(exchange)
        else:
            self._answer(path, exchange).send(exchange)

    def _answer(self, path: bytes, exchange: Exchange) -> Answer:
        if path == b"/shutdown":
            return self._shut_down(exchange.request)
        if path in _PAGES and exchange.request.method not in _READING:
            return ONLY_READ
        if path == b"/live":
            return text(200, "live\n")
        if path == b"/ready":
            readiness = self._admin.readiness
            if not readiness.is_ready:
                return Answer(503, b"not ready\n")
            return text(200, "".join(f"{line}\n" for line in ("ready", *readiness.details())))
        return NOT_FOUND

    def _shut_down(self, request: RequestHead) -> Answer:
        if request.method != b"POST":
            return ONLY_POST
        if not self._is_local:
            return ONLY_LOCALHOST
        if is_foreign(request):
            return FOREIGN_PAGE
        shut_down = self._admin.shut_down
        if shut_down is None:
            return text(404, "shutdown endpoint is not enabled\n")
        return text(200, "shutdown\n") if shut_down() else text(500, "shutdown listener dropped\n")

    def _log_level(self, exchange: Exchange) -> None:
        log = self._admin.log
        method = exchange.request.method
        if not self._is_local:
            ONLY_LOCALHOST.send(exchange)
        elif is_foreign(exchange.request):
            FOREIGN_PAGE.send(exchange)
        elif log.is_off:
            NOT_FOUND.send(exchange)
        elif method == b"GET":
            Answer(200, str(log.filter).encode()).send(exchange)
        elif method == b"PUT":
            self._admin.bodies.answer(exchange, self._set_log_level, limits.LOG_FILTER_BYTES)
        else:
            Answer(405, fields=_ALLOW).send(exchange)

    def _set_log_level(self, body: bytes | None) -> Answer:
        if body is None:
            return text(413, f"a filter has at most {limits.LOG_FILTER_BYTES} bytes\n")._replace(closes=True)
        try:
            self._admin.log.set(body.decode())
        except UnicodeDecodeError as error:
            return Answer(
                400, f"invalid utf-8 sequence of {error.end - error.start} bytes from index {error.start}".encode()
            )
        except FilterError as error:
            _log.warning("Setting log level failed: %s", error)
            return Answer(400, str(error).encode())
        return Answer(204)
