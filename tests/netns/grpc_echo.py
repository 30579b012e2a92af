"""A gRPC server, or a client of it, as a program of a pod: `grpc_echo.py serve PORT`, `grpc_echo.py call ADDRESS AUTHORITY`.

The client prints a line for each kind of call: unary, a stream both ways, an error with its message and trailers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc


class Echo(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # it is generic in its stubs only
    def service(self, details: Any) -> Any:
        return {
            "/test.Echo/Unary": grpc.unary_unary_rpc_method_handler(_unary),
            "/test.Echo/Both": grpc.stream_stream_rpc_method_handler(_both),
            "/test.Echo/Fail": grpc.unary_unary_rpc_method_handler(_fail),
        }.get(details.method)


def _unary(request: bytes, context: Any) -> bytes:
    return request.upper()


def _both(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
    for request in requests:
        yield request.upper()


def _fail(request: bytes, context: Any) -> bytes:
    context.set_trailing_metadata((("why", "because"),))
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
    return b""


def serve(port: str) -> None:
    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((Echo(),))
    server.add_insecure_port(f"0.0.0.0:{port}")
    server.start()
    server.wait_for_termination()


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


def call(address: str, authority: str) -> None:
    with grpc.insecure_channel(address, options=[("grpc.default_authority", authority)]) as channel:
        open_: Any = channel
        say("unary", open_.unary_unary("/test.Echo/Unary")(b"one" * 20000, timeout=30) == b"ONE" * 20000)
        stream = open_.stream_stream("/test.Echo/Both")(iter([b"a", b"b", b"c"]), timeout=30)
        say("both", b"".join(stream).decode())
        try:
            open_.unary_unary("/test.Echo/Fail")(b"", timeout=30)
        except grpc.RpcError as error:
            failed: Any = error
            say("fail", failed.code().name, failed.details(), dict(failed.trailing_metadata())["why"])
        try:
            open_.unary_unary("/test.Echo/Nothing")(b"", timeout=30)
        except grpc.RpcError as error:
            failed = error
            say("nothing", failed.code().name)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        call(*sys.argv[2:])
