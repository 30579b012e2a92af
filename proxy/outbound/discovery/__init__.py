"""From a destination to its effective policy, and what waits until it is known."""
