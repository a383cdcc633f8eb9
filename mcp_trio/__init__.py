"""The Model Context Protocol for Trio: servers, clients and change subscriptions."""
