"""Clients of the control plane: gRPC over our own HTTP/2, answers as Watches of policy and balance models."""
