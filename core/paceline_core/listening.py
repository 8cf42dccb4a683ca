"""Take a port, or say in one line why not and what to do."""

import errno
import socket

from paceline_core.config import Listen
from paceline_core.errors import InvalidInput

BACKLOG = 1024


def bind(listen: Listen, field: str = "listen") -> socket.socket:
    """A listening socket; who connects early waits. Raises InvalidInput naming the field, the address and the fix."""
    try:
        family, _, _, _, address = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InvalidInput(field, f"{_place(listen)} is no address: {error.strerror}") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise InvalidInput(field, _why(listen, error)) from None
    return sock


def _place(listen: Listen) -> str:
    return f"[{listen.host}]:{listen.port}" if ":" in listen.host else f"{listen.host}:{listen.port}"


def _why(listen: Listen, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{_place(listen)} is already in use; stop the other program or choose another port"
    if error.errno == errno.EACCES:
        return f"{_place(listen)} may not be used by this user; choose a port above 1023"
    return f"cannot listen on {_place(listen)}: {error.strerror}; choose an address of this machine"
