"""The embedded control plane with many services, endpoints and watchers: its time and memory."""
