"""Exercises: changes that somebody may want to make, made in a copy of the package, so that the table "to change X,
open Y" in docs/architecture.md stays true. Each shows how many files it takes (at most three) and that the addition
works.
"""
