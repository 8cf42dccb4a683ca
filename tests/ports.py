"""Ports for programs that have to be told theirs."""

import socket


def free_port() -> int:
    """A loopback port that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port
