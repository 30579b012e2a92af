"""The client side of the control-plane APIs: a sidecar asks controllers over gRPC on our own HTTP/2 client.

Answers become Watches of the models in policy/ and balance/. The server side, our own control plane, is the package mesh.
"""
