"""How exchanges end: the table of endings, the answers that the proxy makes itself, and what they say to people."""
