"""Calls that block, made by threads so that the loop is not held up."""
