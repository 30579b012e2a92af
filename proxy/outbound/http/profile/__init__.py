"""Requests that a ServiceProfile routes: its routes, its split, its retries and timeouts (docs/linkerd/service-profiles.md)."""
