"""The gRPC client: names to addresses, addresses to connections, connections to calls and streams."""
