"""Identity: who may join the mesh, and the certificates of those that have."""
