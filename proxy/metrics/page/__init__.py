"""The metrics page: which families there are, and in which order (names.py), and how they are written (exposition.py)."""
