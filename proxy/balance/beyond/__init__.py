"""What goes beyond Linkerd: least request, slow start, probes of endpoints that were slow."""
