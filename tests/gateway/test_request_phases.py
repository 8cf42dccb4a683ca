from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.registry import Outcome, Phase
from paceline_gateway.request.slo import phases
from paceline_gateway.request.types import RequestRecord, TokenUsage, WorkerPhases

TIME = st.floats(min_value=0, max_value=10)


def record(queued: float, sent: float, first: float, ended: float, worker: WorkerPhases | None) -> RequestRecord:
    return RequestRecord(
        Outcome.OK, 200, None, "team", None, 0.0, queued, sent, first, ended, 1, "w0", TokenUsage(worker=worker)
    )


@given(TIME, TIME, TIME, TIME, st.booleans())
def test_the_phases_sum_to_the_whole(admit: float, queue: float, prefill: float, decode: float, told: bool) -> None:
    worker = WorkerPhases(queue=0.1 * prefill, prefill=0.8 * prefill, decode=decode) if told else None
    sent = admit + queue
    whole = record(admit, sent, sent + prefill, sent + prefill + decode, worker)
    assert abs(sum(phases(whole).values()) - whole.e2e) <= 1e-6 + 0.001 * whole.e2e


def test_network_is_what_the_worker_does_not_account_for() -> None:
    spent = phases(record(0.1, 0.3, 1.0, 2.3, WorkerPhases(tokenize=0.1, queue=0.2, prefill=0.5, decode=1.0, post=0.1)))
    assert spent[Phase.ADMIT] == 0.1
    assert round(spent[Phase.QUEUE], 6) == 0.4
    assert round(spent[Phase.NETWORK], 6) == 0.1


def test_without_worker_timings_the_first_token_divides_prefill_from_decode() -> None:
    spent = phases(record(0.0, 1.0, 3.0, 7.0, None))
    assert (spent[Phase.PREFILL], spent[Phase.DECODE], spent[Phase.NETWORK]) == (2.0, 4.0, 0.0)


def test_a_request_that_reached_no_worker_has_waited() -> None:
    unsent = replace(record(1.0, 2.0, 2.5, 4.0, None), sent=None, first=None)
    assert phases(unsent) == {Phase.ADMIT: 1.0, Phase.QUEUE: 3.0}


def test_a_request_that_was_not_let_in_has_no_phases() -> None:
    assert phases(replace(record(0.0, 1.0, 2.0, 3.0, None), queued=None, sent=None)) == {}
