"""Exercises: changes that somebody may want to make, made in a copy of the package, so that docs/architecture.md's "to change X, open Y"
stays true. Each shows how many files it takes (at most three) and that what was added works."""
