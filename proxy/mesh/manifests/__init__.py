"""From a directory of YAML manifests to the Model, with file and line of whatever is wrong.

Read `load.py` first; one file a kind; `directory.py` follows changes.
"""
