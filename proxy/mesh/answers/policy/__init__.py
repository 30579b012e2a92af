"""What proxies are told to let in, and what to do with what leaves: answers of InboundServerPolicies and OutboundPolicies."""
