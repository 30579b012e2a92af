"""TLS connections: a non-blocking SSLSocket driven by the loop's reader and writer callbacks.

Law: the same behaviour as a plain connection, half-close included:
close_notify is sent by `end` and reading goes on, which the loops' own ssl
cannot do. Records at hand are read together and fed once, into one shared
buffer; how long to look for more is learnt from what was found.
"""

from __future__ import annotations

import socket
import ssl
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Final, cast

from proxy.core import limits
from proxy.core.codec import Codec, Wire
from proxy.core.errors import report_fault
from proxy.core.flusher import Flusher
from proxy.core.reason import Reason

MakeCodec = Callable[[Wire], Codec]

_BUFFER_BYTES: Final = 262144
_RECORD_BYTES: Final = 16384
_PATIENCE: Final = 8
"""Wake-ups with a single record until we stop looking for a second (the look that finds none costs 10 us),
and then until we look once more: without that, two peers settle into one record per wake-up for good."""

# One buffer for all: an allocation of this size per read would be mapped and unmapped every time.
_buffer: Final = bytearray(_BUFFER_BYTES)
_view: Final = memoryview(_buffer)


def _read_nothing(size: int, buffer: memoryview) -> int:
    raise ssl.SSLWantReadError


_CONNECTING: Final = 0
_HANDSHAKE: Final = 1
_OPEN: Final = 2
_CLOSED: Final = 3


class Session:
    __slots__ = (
        "codec", "_loop", "_flusher", "_context", "_server_name", "_is_server", "_raw", "_socket", "_fd", "_state",
        "_output", "_unsent", "_read", "_patience", "_is_marked", "_is_paused", "_is_ending", "_has_ended", "_has_eof", "_is_full",
    )  # fmt: skip

    def __init__(
        self,
        loop: AbstractEventLoop,
        flusher: Flusher,
        context: ssl.SSLContext,
        name: str | None,
        make_codec: MakeCodec,
    ) -> None:
        self._loop = loop
        self._flusher = flusher
        self._context = context
        self._server_name = name
        """The server that we dial, or None if we are the server."""
        self._raw: socket.socket | None = None
        self._socket: ssl.SSLSocket | None = None
        self._fd = -1
        self._state = _CONNECTING
        self._output: list[bytes] = []
        self._unsent = b""
        self._read: Callable[..., int] = _read_nothing
        self._patience = _PATIENCE
        self._is_marked = False
        self._is_paused = False
        self._is_ending = False
        self._has_ended = False
        self._has_eof = False
        self._is_full = False
        self.codec = make_codec(self)

    # ---- beginning

    def connect(self, address: tuple[str, int]) -> None:
        raw = self._adopt(socket.socket())
        try:
            raw.connect(address)
        except BlockingIOError:
            pass
        except OSError:
            self._loop.call_soon(self.abort, Reason.CONNECT_FAILED)
            return
        self._loop.add_writer(self._fd, self._on_connected)

    def accept(self, raw: socket.socket) -> None:
        self._adopt(raw)
        self._begin_handshake()

    def _adopt(self, raw: socket.socket) -> socket.socket:
        raw.setblocking(False)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._raw = raw
        self._fd = raw.fileno()
        return raw

    def _on_connected(self) -> None:
        raw = self._raw
        self._loop.remove_writer(self._fd)
        if raw is None or raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.abort(Reason.CONNECT_FAILED)
            return
        self._begin_handshake()

    def _begin_handshake(self) -> None:
        raw = self._raw
        assert raw is not None
        name = self._server_name
        self._socket = self._context.wrap_socket(
            raw, server_side=name is None, server_hostname=name, do_handshake_on_connect=False
        )
        self._raw = None
        self._read = cast("Callable[..., int]", self._socket.read)
        self._state = _HANDSHAKE
        self._loop.add_reader(self._fd, self._on_readable)
        self._shake_hands()

    def _shake_hands(self) -> None:
        tls = self._socket
        assert tls is not None
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            self._loop.add_writer(self._fd, self._on_writable)
            return
        except OSError:
            self.abort(Reason.CONNECT_FAILED)
            return
        self._state = _OPEN
        if self._is_paused:
            self._loop.remove_reader(self._fd)
        self.flush()
        self._watch_level()

    # ---- Wire

    def write(self, data: bytes) -> None:
        self._output.append(data)
        if not self._is_marked:
            self._is_marked = True
            self._flusher.mark(self)

    def pause_reading(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            if self._state == _OPEN:
                self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            if self._state == _OPEN and not self._has_eof:
                self._loop.add_reader(self._fd, self._on_readable)

    def end(self) -> None:
        self._is_ending = True
        if not self._is_marked:
            self._is_marked = True
            self._flusher.mark(self)

    def abort(self, reason: Reason) -> None:
        if self._state == _CLOSED:
            return
        if self._state == _OPEN and self._output:
            self.flush()  # a GOAWAY should still leave
        was_open = self._state != _CLOSED
        self._state = _CLOSED
        if was_open:
            self._close_socket()
            self._loop.call_soon(self.codec.lost, reason)

    def hand_over(self, codec: Codec) -> None:
        self.codec = codec

    def _close_socket(self) -> None:
        self._output = []
        tls: socket.socket | None = self._socket or self._raw
        if tls is not None:
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            tls.close()
        self._socket = self._raw = None

    # ---- Flusher

    def flush(self) -> None:
        self._is_marked = False
        if self._state == _CLOSED:
            self._output = []
            return
        if self._state != _OPEN or self._unsent:
            self._watch_level()
            return
        output = self._output
        if output:
            self._output = []
            self._send(output[0] if len(output) == 1 else b"".join(output))
        if self._is_ending and not self._has_ended and not self._unsent:
            self._send_close_notify()

    def _send(self, data: bytes) -> None:
        tls = self._socket
        assert tls is not None
        sent = 0
        size = len(data)
        try:
            sent = tls.send(data)
            if sent < size:
                view = memoryview(data)
                while sent < size:  # one record at a time
                    sent += tls.send(view[sent:])
        except (ssl.SSLWantWriteError, BlockingIOError):
            self._unsent = data[sent:]
            self._loop.add_writer(self._fd, self._on_writable)
            self._watch_level()
        except OSError:
            self.abort(Reason.PEER_CLOSED)

    def _watch_level(self) -> None:
        level = len(self._unsent) + sum(map(len, self._output))
        if not self._is_full and level > limits.WRITE_HIGH_BYTES:
            self._is_full = True
            self.codec.writable(False)
        elif self._is_full and level <= limits.WRITE_LOW_BYTES:
            self._is_full = False
            self.codec.writable(True)

    def _send_close_notify(self) -> None:
        self._has_ended = True
        tls = self._socket
        assert tls is not None
        try:
            tls.unwrap()
        except ssl.SSLError:
            pass  # ours is sent; the peer's has not come, or data came before it
        except OSError:
            self.abort(Reason.PEER_CLOSED)
            return
        if self._has_eof:
            self.abort(Reason.COMPLETE)

    # ---- the loop

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._fd)
        if self._state == _HANDSHAKE:
            self._shake_hands()
        elif self._state == _OPEN:
            unsent = self._unsent
            self._unsent = b""
            if unsent:
                self._send(unsent)
            if not self._unsent and self._state == _OPEN:
                self.flush()
            self._watch_level()

    def _on_readable(self) -> None:
        if self._state != _OPEN:
            if self._state == _HANDSHAKE:
                self._shake_hands()
            return
        filled = 0
        has_eof = False
        failure: Reason | None = None
        try:
            filled = self._read(_BUFFER_BYTES, _buffer)
            has_eof = not filled
            patience = self._patience
            self._patience = patience - 1 if patience > -_PATIENCE else 1
            if filled and (patience > 0 or filled == _RECORD_BYTES):
                while filled <= _BUFFER_BYTES - _RECORD_BYTES:
                    count = self._read(_RECORD_BYTES, _view[filled:])
                    if not count:
                        has_eof = True
                        break
                    filled += count
                    self._patience = _PATIENCE
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            has_eof = True  # what close_notify looks like once we have sent ours
        except ssl.SSLError:
            failure = Reason.PROTOCOL_ERROR
        except OSError:
            failure = Reason.PEER_CLOSED
        self._deliver(filled, has_eof)
        if failure is not None:
            self.abort(failure)

    def _deliver(self, filled: int, has_eof: bool) -> None:
        try:
            if filled:
                self.codec.feed(_view[:filled].tobytes())
            if has_eof and self._state == _OPEN:
                self._on_eof()
        except Exception:
            report_fault()
            self.abort(Reason.INTERNAL)

    def _on_eof(self) -> None:
        self._has_eof = True
        self._loop.remove_reader(self._fd)
        self.codec.eof()
        if self._has_ended:
            self.abort(Reason.COMPLETE)
