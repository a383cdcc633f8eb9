"""Change subscriptions: events, filters, the hub, and the runner of one subscription.

Knows Trio and the protocol's values, and nothing of transports.
"""
