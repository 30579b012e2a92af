"""Streams of an HTTP/2 connection: their states, their windows, and the data that waits for both."""
