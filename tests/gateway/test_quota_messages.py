"""Asks and grants between gateways survive the way, and what is no call or reply is refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.errors import Code, RequestError, Unreachable
from paceline_gateway.queueing.shared_fairness import MAX_REPORTED
from paceline_gateway.quota.types import UNLIMITED, LeaseGrant, LeaseRequest
from paceline_gateway.quota_store.peer import (
    ExchangeRequest,
    ExchangeResponse,
    address_of,
    read_call,
    read_reply,
    write_call,
    write_reply,
)

NUMBER = st.floats(-1e12, 1e12) | st.just(UNLIMITED)
VECTOR = st.tuples(NUMBER, NUMBER, NUMBER, NUMBER)
ASK = st.builds(
    LeaseRequest, st.text(max_size=20), st.just("g0"), st.integers(0, 2**50), VECTOR, VECTOR, VECTOR, VECTOR, VECTOR,
    st.integers(0, 2**53), st.none() | VECTOR,
)  # fmt: skip


SUMS = st.none() | st.dictionaries(st.text(max_size=20), st.floats(-1e12, 1e12), max_size=5)


@given(st.lists(ASK, max_size=5), st.floats(0, 100), SUMS)
def test_a_call_is_read_as_it_was_written(
    asks: list[LeaseRequest], ttl_s: float, served: dict[str, float] | None
) -> None:
    call = ExchangeRequest("g0", ttl_s, tuple(asks), served)
    assert read_call(write_call(call)) == call


@given(st.lists(st.builds(LeaseGrant, VECTOR, VECTOR, st.integers(0, 2**53)), max_size=5), st.integers(0, 99), SUMS)
def test_a_reply_is_read_as_it_was_written(
    grants: list[LeaseGrant], gateways: int, served: dict[str, float] | None
) -> None:
    reply = ExchangeResponse(gateways, tuple(grants), served)
    assert read_reply(write_reply(reply), len(grants)) == reply


@cases(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"v": 2, "holder": "g", "ttl": 1, "asks": []}',
        b'{"v": 1, "holder": "g", "ttl": "soon", "asks": []}',
        b'{"v": 1, "holder": "g", "ttl": 1, "asks": [{}]}',
        b'{"v": 1, "holder": "g", "ttl": 1, "asks": [{"tenant": "t", "seq": 1, "epoch": 0, "vectors": [[1]]}]}',
        b'{"v": 1, "holder": "g", "ttl": 1, "asks": 3}',
        b'{"v": 1, "holder": "g", "ttl": 1, "asks": [], "served": [1]}',
        b'{"v": 1, "holder": "g", "ttl": 1, "asks": [], "served": {"chat interactive\\na": null}}',
    ],
)
def test_what_is_no_call_is_the_callers_fault(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        read_call(body)
    assert caught.value.code is Code.INVALID_REQUEST


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"v": 1}', b'{"v": 1, "gateways": 1, "grants": []}', b'{"v": 2, "gateways": 1, "grants": [{}]}'],
)
def test_what_is_no_reply_is_as_good_as_none(body: bytes) -> None:
    with pytest.raises(Unreachable):
        read_reply(body, 1)


@pytest.mark.parametrize(
    ("holder", "address"),
    [
        ("10.0.0.3:8081/gateway-x.ab12", ("10.0.0.3", 8081)),
        ("fd00::3:8081/gateway-x", ("fd00::3", 8081)),
        ("", None),
        ("gateway-x", None),
        ("host:/x", None),
        (":80/x", None),
    ],
)
def test_the_holders_name_begins_with_where_it_is(holder: str, address: tuple[str, int] | None) -> None:
    assert address_of(holder) == address


def test_one_call_reports_a_bounded_number_of_tenants() -> None:
    told = read_call(
        write_call(ExchangeRequest("g0", 1.0, (), {f"t{number}": 1.0 for number in range(MAX_REPORTED + 9)}))
    )
    assert told.served is not None
    assert len(told.served) == MAX_REPORTED
