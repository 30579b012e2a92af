"""Connections of the app that are forwarded as bytes, in order: sni.py (the name in a ClientHello), tunnel.py (one connection),
logical.py (route), concrete.py (backend), endpoint.py (one address)."""
