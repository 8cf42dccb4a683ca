import socket

import pytest

from paceline_core.config import Listen
from paceline_core.errors import InvalidInput
from paceline_core.process import bind


def test_port_0_takes_a_free_port_and_early_callers_wait() -> None:
    with bind(Listen(port=0)) as sock, socket.create_connection(sock.getsockname(), timeout=5) as caller:
        assert caller.getpeername() == sock.getsockname()


def test_a_taken_port_is_named_with_the_field_and_the_fix() -> None:
    with bind(Listen(port=0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(InvalidInput, match=rf"^admin: 127\.0\.0\.1:{port} is already in use; stop the other"):
            bind(Listen(port=port), "admin")


@pytest.mark.parametrize(("host", "said"), [("no such host", "is no address"), ("192.0.2.1", "choose an address")])
def test_an_address_that_is_not_ours_is_refused(host: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        bind(Listen(host=host, port=0))
