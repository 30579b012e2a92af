"""What is kept elsewhere as plain numbers and copied at a scrape: of balancers, the control plane's clients, the process, connections."""
