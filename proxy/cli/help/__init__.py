"""What commands say of themselves: parsers, help, examples, the man page."""
