"""Frames as octets and numbers: their form, their order, the settings and the error codes."""
