"""How the embedded control plane fares with many services, endpoints and watchers."""
