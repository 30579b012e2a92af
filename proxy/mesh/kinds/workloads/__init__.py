"""Workloads: pods, workloads outside of pods, and their annotations."""
