"""ServiceProfiles: their routes, the conditions of those, and which responses count as successes."""
