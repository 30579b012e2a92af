"""Failure accrual: what failed responses do to the endpoint that gave them."""
