"""The policies for proxies: answers of InboundServerPolicies (what they let in) and OutboundPolicies (how they route)."""
