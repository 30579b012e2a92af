"""Traffic that the application sends: it is discovered, routed, balanced, and sent over mTLS. Read stack.py first."""
