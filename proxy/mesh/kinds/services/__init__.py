"""What is asked for by name: services, their endpoints and profiles."""
