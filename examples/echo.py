"""An HTTP app that knows nothing of a mesh: it answers with its name and with who called, as its sidecar vouches.

python3 examples/echo.py NAME [PORT]        PORT from the environment if it is not given
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME = sys.argv[1]
PORT = int(sys.argv[2] if len(sys.argv) > 2 else os.environ["PORT"])


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        caller = self.headers["l5d-client-id"] or "nobody"
        body = f"{NAME}: hello, {caller.partition('.')[0]}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


ThreadingHTTPServer(("", PORT), Echo).serve_forever()
