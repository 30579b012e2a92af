"""Whether workloads outside of pods are alive: the control plane probes them, because no kubelet does."""
