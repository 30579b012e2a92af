"""What clients look up by name: services, their endpoints and profiles."""
