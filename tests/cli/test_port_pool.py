import socket
from collections.abc import Iterator

import pytest

from paceline_cli.up.command import choose_ports
from paceline_core.errors import InvalidInput
from paceline_local.context import FIRST, LAST, PortPool, is_free, owner

HOST = "127.0.0.1"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, PortPool(HOST).take()))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_is_free_until_somebody_listens(taken: int) -> None:
    assert not is_free(HOST, taken)
    assert PortPool(HOST).take() != taken


def test_ports_stay_out_of_the_kernels_range_and_apart() -> None:
    pool = PortPool(HOST)
    chosen = [pool.take() for _ in range(20)]
    assert len(set(chosen)) == 20
    assert all(FIRST <= port < LAST for port in chosen)


def test_a_taken_public_port_is_refused_with_its_owner(taken: int) -> None:
    with pytest.raises(InvalidInput, match=rf"--port: 127\.0\.0\.1:{taken} is in use \(process \d+, .+\); stop that"):
        choose_ports(taken, PortPool(HOST))


def test_the_owner_of_a_free_port_is_nobody() -> None:
    assert owner(PortPool(HOST).take()) == ""


def test_any_port_will_do_when_zero_is_asked_for() -> None:
    ports = choose_ports(0, PortPool(HOST))
    assert len({ports.public, ports.gateway, ports.autoscaler}) == 3
    assert 0 not in (ports.public, ports.gateway, ports.autoscaler)


def test_a_port_given_back_can_be_had_again() -> None:
    pool = PortPool(HOST)
    first = pool.take()
    second = pool.take()
    pool.give_back(first)
    assert pool.take() == first != second
