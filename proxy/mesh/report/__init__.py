"""Report: what the control plane believes, from which file and line, who watches what, and how old it is."""
