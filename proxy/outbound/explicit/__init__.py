"""The app names us as its proxy: connection.py (requests in absolute form), then connect.py (CONNECT)."""
