"""The objects that the control plane believes in: read from files, kept good, indexed, and published as snapshots."""
