"""What sending a request a second time takes: the decision, the copy of the body, and where the first answer goes."""
