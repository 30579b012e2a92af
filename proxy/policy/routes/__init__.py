"""Routes: which one a request takes, and what its filters do to the request."""
