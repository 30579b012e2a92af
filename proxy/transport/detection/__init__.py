"""From an accepted socket to its codec: peeking, the first bytes, the transport header, the early connection."""
