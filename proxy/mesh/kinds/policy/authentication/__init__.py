"""Who a client is, as policies say it: identities and networks."""
