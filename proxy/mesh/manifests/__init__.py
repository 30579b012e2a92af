"""Reads YAML manifests: text becomes values (yaml.py, value.py), which schemas judge (schema.py) and kinds read (kind.py).

Read `reading.py` first. `kinds/` has a file for each kind; `store/` follows changes of the directory.
"""
