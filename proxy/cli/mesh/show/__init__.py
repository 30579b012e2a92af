"""Actions that show what the running control plane knows."""
