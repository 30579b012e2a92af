"""HTTP requests of the app."""
