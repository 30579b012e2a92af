"""The gateway: traffic that came in for a name that other clusters may use goes out again, by the outbound side of this process
(docs/linkerd/inbound.md, section 4; docs/linkerd/outbound.md, section 12).

server.py takes the connections, requests.py handles a request between the two sides, forwarded.py keeps it
from going round in a loop, onward.py is all that is known here of the outbound side.
"""
