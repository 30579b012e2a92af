"""From a socket to its codec."""
