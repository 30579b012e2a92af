"""What the loop shares out."""
