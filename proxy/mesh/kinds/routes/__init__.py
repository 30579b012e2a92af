"""Routes: HTTPRoute (Gateway API's and Linkerd's), GRPCRoute, TLSRoute, TCPRoute, and who may refer across namespaces."""
