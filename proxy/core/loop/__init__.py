"""What the event loop shares out: deadlines, writes, and the time of one turn."""
