"""Clients of the control plane. What they learn leaves here as a Watch of policy and balance models, never as protobuf."""
