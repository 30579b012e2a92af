"""Failures: why something ended, what may be raised for it, and how often it was seen."""
