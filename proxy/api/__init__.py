"""The wire interface: .proto files compatible with io.linkerd.proxy.*, and what is generated from them.

Messages and paths only. No stubs of grpcio: a sidecar must not import
it, so methods are a table (services.py) that clients and servers both read.
"""
