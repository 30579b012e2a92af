"""What is asked of the control plane, and what it says: a question is answered once per state, for all who ask it."""
