"""The control plane's port: its TLS, its clients, and the way between grpcio and the answers."""
