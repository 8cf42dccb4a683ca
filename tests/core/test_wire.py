import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import InvalidInput
from paceline_core.registry import RequestClass
from paceline_core.wire import ClassDemand, DemandReport, ServiceDemand, StepTime, decode, encode

REPORT = DemandReport(
    gateway="gw-0",
    started="2026-01-01T00:00:00Z",
    services=(ServiceDemand(service="default/chat", classes=(ClassDemand(name=RequestClass.BATCH, held=2),)),),
)


def test_a_message_reads_back_as_it_was_written() -> None:
    assert decode(DemandReport, encode(REPORT)) == REPORT


def test_one_message_is_one_line() -> None:
    assert encode(REPORT).count(b"\n") == 1


def test_a_field_from_the_future_is_ignored() -> None:
    line = encode(REPORT).replace(b'"seq":', b'"newer":1,"seq":')
    assert decode(DemandReport, line) == REPORT


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(InvalidInput, match="v"):
        decode(DemandReport, encode(REPORT).replace(b'"v":1', b'"v":2'))


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"v":1}', b"\xff"])
def test_a_malformed_line_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode(DemandReport, line)


def test_a_line_over_the_limit_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(InvalidInput, match="over the limit"):
        decode(DemandReport, b"x" * (2 << 20))


@given(st.integers(0, 10**5), st.integers(0, 10**3), st.integers(0, 10**7))
def test_a_step_takes_no_less_time_for_more_work(prefill: int, sequences: int, kv: int) -> None:
    model = StepTime(base=0.004, prefill=3e-5, sequence=1e-5, kv=3e-8, context=1e-9)
    less = model.seconds(prefill_tokens=prefill, sequences=sequences, kv_tokens=kv)
    more = model.seconds(prefill_tokens=prefill + 1, sequences=sequences + 1, kv_tokens=kv + 1, context=10)
    assert 0 <= less < more
