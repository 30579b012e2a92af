"""The answers of the control plane: each question is answered once per state, for all clients that ask it."""
