"""Streamable HTTP.

The endpoint holds every rule of the transport once, free of any server; the other modules bring
it to ASGI and to Hypercorn, and clients to servers.
"""
