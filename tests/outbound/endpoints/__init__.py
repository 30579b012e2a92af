"""Endpoints: which one is chosen, and what happens to one that fails or moves."""
