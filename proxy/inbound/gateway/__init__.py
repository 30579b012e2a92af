"""The gateway: what came in for a name of another cluster's goes out again, by the outbound side of the same process
(docs/linkerd/inbound.md, section 4; docs/linkerd/outbound.md, section 12).

server.py takes the connections, requests.py says what happens to a request between the two sides, forwarded.py keeps it
from going round in a loop, onward.py is all that is known here of the outbound side.
"""
