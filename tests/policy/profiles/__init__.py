"""ServiceProfiles."""
