"""Routes: HTTPRoute (Gateway API's and Linkerd's), GRPCRoute, TLSRoute, TCPRoute, and ReferenceGrant, which permits
references across namespaces.
"""
