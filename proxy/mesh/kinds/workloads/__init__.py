"""What serves: pods and workloads outside of pods, and what is said about them."""
