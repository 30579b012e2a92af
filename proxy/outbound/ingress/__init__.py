"""Ingress mode: an ingress controller's requests go where `l5d-dst-override` says (docs/linkerd/outbound.md, section 11)."""
