"""The control plane's policies as plain data, and pure functions over them. No I/O, no protobuf."""
