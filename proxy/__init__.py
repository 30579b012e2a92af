"""Sponson: a service-mesh sidecar proxy. Start at docs/architecture.md; the data path begins in app.py."""

__version__ = "0.1.0"
