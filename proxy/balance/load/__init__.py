"""Loads: how busy an endpoint looks to a picker."""
