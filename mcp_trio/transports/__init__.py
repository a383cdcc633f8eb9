"""Transports: the two seams (`abc`), and what carries messages over memory and byte streams."""
