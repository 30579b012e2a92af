"""TLS. Only this package and mesh know ssl and cryptography."""
