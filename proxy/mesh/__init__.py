"""The embedded control plane: manifests in, Linkerd's gRPC APIs out. A sidecar never imports it."""
