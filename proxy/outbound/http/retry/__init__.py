"""Retries and timeouts of routes (docs/linkerd/outbound.md, sections 8.3 to 8.5; docs/linkerd/service-profiles.md, section 5).

stage.py begins them, tries.py is what one request has of them, policy.py says which responses are retried and who may.
"""
