"""Join: how a workload on another machine comes into the mesh, and stays."""
