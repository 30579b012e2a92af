"""The app uses this proxy explicitly: connection.py (requests in absolute form), then connect.py (CONNECT)."""
