"""Traffic that comes to the application: terminate mTLS, decide by identity, hand over.

Read stack.py first. connection/ has the steps of a connection, http/ those of a request; both stand on policies.py (what holds
for a port now), router.py (its routes), arrived.py (who came) and runtime.py (what all connections share).
"""
