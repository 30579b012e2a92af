"""What the control plane wants, as plain data, and pure functions over it. No I/O, no protobuf."""
