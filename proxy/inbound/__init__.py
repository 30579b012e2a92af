"""Traffic that comes to the application: terminate mTLS, decide by identity, hand over. Read stack.py first."""
