"""The bench: what a proxy costs and adds, measured side by side in one run.

It reports no number that it did not measure. Candidates take turns round by round on the same core, and only ratios
within one run count as facts.
"""
