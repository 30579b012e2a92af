"""Tests of the bench, and micro-benchmarks of the parts that every request passes (`pytest tests/bench
--benchmark-enable`).
"""
