"""Traffic that the application sends: where to, by which endpoint, over mTLS. Read stack.py first."""
