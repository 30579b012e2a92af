"""Explicit clients: CONNECT and absolute targets."""
