"""The kinds of manifests, one a file: schema, model, reader and tables; catalog.py lists them all."""
