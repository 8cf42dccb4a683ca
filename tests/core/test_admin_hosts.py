"""Names by which an admin port may be called, and what a page that rebinds one hears."""

import asyncio
import json
import socket
from typing import Any

import pytest
from tests.every import cases

from paceline_core.admin.middleware import is_own, named
from paceline_core.config import Listen
from paceline_core.process import BACKLOG, admin_server, bind


@cases(
    ("host", "own"),
    [
        ("127.0.0.1:8081", True),
        ("10.1.2.3", True),
        ("[::1]:8081", True),
        ("[fd00::1]", True),
        ("localhost:8081", True),
        ("LOCALHOST.:8081", True),
        ("paceline-gateway", True),
        ("gateway.paceline-system.svc:8081", True),
        ("gateway.paceline-system.svc.cluster.local", True),
        ("admin.example.com:8081", True),
        ("", True),
        ("evil.example.com:8081", False),
        ("svc.evil.com", False),
        ("a.b.svc.evil.com", False),
        ("127.0.0.1.nip.io", False),
    ],
)
def test_an_admin_port_has_no_names_of_strangers(host: str, own: bool) -> None:
    assert is_own(host.encode(), frozenset({"admin.example.com"})) is own


async def page(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.mark.real
async def test_every_admin_server_refuses_a_rebound_name_and_listens_with_the_full_backlog() -> None:
    sock = bind(Listen(host="127.0.0.1", port=0))
    server = admin_server(page)
    serving = asyncio.create_task(server.serve([sock]))
    for host, status in (("evil.example.com", 400), ("127.0.0.1", 200)):
        reader, writer = await asyncio.open_connection(*sock.getsockname()[:2])
        writer.write(f"GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
        told = await reader.read()
        assert int(told.split(b" ")[1]) == status
        if status == 400:
            assert json.loads(told.partition(b"\r\n\r\n")[2])["error"]["param"] == "host"
        writer.close()
    assert backlog(sock) >= BACKLOG
    server.should_exit = True
    await serving


def backlog(sock: socket.socket) -> int:
    """How many connections a listening socket keeps for its process, as the kernel has it (`tcp_info.tcpi_sacked`)."""
    return int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[28:32], "little")


def test_the_environment_names_further_ones() -> None:
    assert named({"PACELINE_ADMIN_HOSTS": "a.example.com, B.example.com,"}) == {"a.example.com", "b.example.com"}
    assert named({}) == frozenset()
