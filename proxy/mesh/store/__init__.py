"""The objects of the control plane: read from files, kept in their last good state, indexed, and published as snapshots."""
