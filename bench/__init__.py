"""The bench: what a proxy costs and adds, measured side by side in one run.

No number that was not measured here; peers take turns round by round on
the same core, and only ratios within one run are read as facts.
"""
