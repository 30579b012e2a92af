"""Permissions: the kinds of policy.linkerd.io, and one of our own."""
