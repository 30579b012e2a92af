"""Tests of the bench, and micro-benchmarks of what every request passes (`pytest tests/bench --benchmark-enable`)."""
