"""What applications do in the containers of these pods: a server that answers with what it saw, a job that asks and ends.

python3 -c APP serve PORT        # HTTP/1.1; SIGTERM ends it with status 0
python3 -c APP ask URL           # prints the answer; status 1 if there is none
"""

from __future__ import annotations

APP = """
import http.server, signal, sys, urllib.request
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = (self.requestline + "\\n" + str(self.headers)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
if sys.argv[1] == "serve":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    http.server.ThreadingHTTPServer(("0.0.0.0", int(sys.argv[2])), Answer).serve_forever()
print(urllib.request.urlopen(sys.argv[2], timeout=30).read().decode())
"""


def container(image: str, name: str, *arguments: str) -> dict[str, object]:
    """An application's container, which runs as user 1000."""
    return {
        "name": name,
        "image": image,
        "command": ["/usr/bin/python3", "-IBc", APP, *arguments],
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1000},
    }
