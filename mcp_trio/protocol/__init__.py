"""The protocol without I/O: bytes in, values out, and the rules between them.

Nothing here imports Trio; a test holds that.
"""
