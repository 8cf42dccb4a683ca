"""TCP ports for the parts: below the kernel's ephemeral range, so that no outgoing connection takes one first.

Checked, not reserved: a port taken between the check and the child's bind ends the child; its next start gets another.
"""

import os
import socket
from collections.abc import Container

from paceline_core.errors import Unreachable

FIRST, LAST = 20_000, 32_000


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def pick(host: str, taken: Container[int]) -> int:
    """A free port that is not in `taken`; two supervisors begin their search at different places."""
    start = os.getpid() * 61 % (LAST - FIRST)
    for step in range(LAST - FIRST):
        port = FIRST + (start + step) % (LAST - FIRST)
        if port not in taken and is_free(host, port):
            return port
    raise Unreachable(f"no port between {FIRST} and {LAST} is free on {host}")
