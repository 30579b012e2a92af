"""Whether workloads outside of pods are alive: probed from here, since no kubelet does it."""
