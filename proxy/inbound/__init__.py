"""Traffic that comes to the application: terminate mTLS, decide by identity, hand over.

Read stack.py first. connection/ has the steps of a connection, http/ those of a request. Both use policies.py (the current
policy of each port), router.py (its routes), arrived.py (the client) and runtime.py (what all connections share).
"""
