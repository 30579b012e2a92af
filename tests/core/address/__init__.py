"""Addresses and names."""
