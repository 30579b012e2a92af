"""Retries and timeouts of routes (docs/linkerd/outbound.md, sections 8.3 to 8.5; docs/linkerd/service-profiles.md, section 5).

stage.py begins them, tries.py holds those of one request, policy.py decides which responses are retried and how often.
"""
