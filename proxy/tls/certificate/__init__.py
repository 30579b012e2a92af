"""Certificates as files and octets: keys and requests, anchors, validity, revocation."""
