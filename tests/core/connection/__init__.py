"""What every connection has."""
