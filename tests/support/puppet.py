"""A server process on strings: it passes on what it reads, and says what it is told to.

    python -I -S puppet.py PATH

The strings are a Unix socket. It ends when either side does. It imports next to nothing, so that
it starts in no time.
"""

import os
import select
import socket
import sys


def relay(wire: socket.socket) -> None:
    """Copy bytes both ways until one side ends."""
    ways = {0: wire.fileno(), wire.fileno(): 1}
    while True:
        ready, _, _ = select.select(list(ways), [], [])
        for source in ready:
            data = os.read(source, 65536)
            if not data:
                return
            while data:
                data = data[os.write(ways[source], data) :]


if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(sys.argv[1])
        # Whoever holds the strings may want to know whom to kill.
        connection.sendall(b"%d\n" % os.getpid())
        relay(connection)
