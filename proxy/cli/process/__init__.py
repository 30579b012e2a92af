"""Commands as processes: children of one command, and how a command ends."""
