"""The HTTP servers beside a process's own work (health, metrics, admin): uvicorn, told to keep out of everything else.

Imported by the shells alone: it needs uvicorn, which comes with each component's extra.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import uvicorn

from paceline_core.admin_bodies import AdminBodies
from paceline_core.admin_hosts import AdminHosts
from paceline_core.http_protocol import Protocol

CLOSE_S = 1


class Server(uvicorn.Server):
    """uvicorn without its own idea of signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them to the process."""
        yield


def admin_server(app: Any) -> Server:
    """A server of an ASGI application: `serve([socket])` until `should_exit`, open answers then have a second left."""
    return Server(
        uvicorn.Config(
            AdminHosts(AdminBodies(app)),
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_S,
        )
    )
