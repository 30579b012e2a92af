"""Numbers that are kept elsewhere as plain values and copied at a scrape: those of balancers, the control plane's
clients, the process and connections.
"""
