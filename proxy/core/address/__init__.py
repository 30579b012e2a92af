"""Addresses and names: where bytes go, what a destination is called, and which addresses are our own."""
